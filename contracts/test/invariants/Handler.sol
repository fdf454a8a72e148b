// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Round} from "../Round.sol";

/// @notice The people of a network, acting as they do: a client, a scheduler, workers that serve or keep silent,
/// a claimer that may lie and may hold no bundle, a challenger with or without cause, a prover that convicts anyone.
contract Handler is Round {
    address private constant DEAD = 0x000000000000000000000000000000000000dEaD;
    bytes private constant SHOWN = "bundle";

    /// @dev Jobs as the events left them, encoded: nested lists do not go into storage.
    bytes[] private _cases;
    JobId[] private _ids;
    uint256[] private _fees;
    uint256 public minted;
    uint256 public withdrawn;
    mapping(string action => uint256) public counts;

    function setUp() public override {
        super.setUp();
        kinds[workers[4]] = Kind.Strange; // a liar, in whatever role
        minted = 9000 ether;
        for (uint256 i = 0; i < 5; ++i) {
            _stake(workers[i], 9000 ether);
        }
        _stake(scheduler, 100_000 ether);
        minted += 145_000 ether;
    }

    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.hidden = 16;
        spec.sliceDims = 16;
        spec.checkedRequests = 1;
    }

    /// @dev One job in three is drawn for a public round.
    function _terms() internal view override returns (Config memory config) {
        config = super._terms();
        config.forcedEvery = 3;
    }

    // ── Time and money ──────────────────────────────────────────────────────────────────────────

    function wait_(uint256 time) external {
        pass(bound(time, 12, 40 minutes));
        ++counts["wait"];
    }

    function deposit(uint256 amount) external {
        uint96 value = uint96(bound(amount, 1, 100 ether));
        _deposit(client, value);
        minted += value;
    }

    function unlock(uint256 amount) external {
        uint256 held = _deposited();
        if (held == 0) return;
        vm.prank(client);
        network.requestUnlock(scheduler, uint96(bound(amount, 1, held)));
    }

    function withdrawDeposit() external {
        (, uint96 unlocking, uint40 availableAt) = network.depositOf(client, scheduler);
        if (unlocking == 0 || vm.getBlockTimestamp() < availableAt) return;
        uint256 before = token.balanceOf(client);
        vm.prank(client);
        network.withdrawDeposit(scheduler);
        withdrawn += token.balanceOf(client) - before;
    }

    function requestStake(uint256 who, uint256 amount) external {
        address operator = _operator(who);
        (uint96 balance,, uint96 staked,,,) = network.accountOf(operator);
        if (balance <= staked) return;
        vm.prank(operator);
        network.requestStakeWithdrawal(uint96(bound(amount, 1, balance - staked) / 50 + 1));
    }

    function withdrawStake(uint256 who) external {
        address operator = _operator(who);
        (,,,, uint40 availableAt,) = network.accountOf(operator);
        if (availableAt == 0 || vm.getBlockTimestamp() < availableAt) return;
        uint256 before = token.balanceOf(operator);
        vm.prank(operator);
        network.withdrawStake();
        withdrawn += token.balanceOf(operator) - before;
    }

    function rejoin(uint256 who) external {
        uint32 seat = uint32(who % 5);
        (address owner,, uint40 leftAt,) = network.seatOf(modelId, seat);
        if (owner == address(0)) {
            vm.prank(workers[who % 5]);
            network.join(modelId, PRICE);
        } else if (leftAt == 0) {
            (, uint32 owners) = network.slotsOf(modelId);
            if (owners <= 4) return;
            vm.prank(owner);
            network.leave(modelId, seat);
        } else if (vm.getBlockTimestamp() >= leftAt + terms.unbonding) {
            network.release(modelId, seat);
        }
    }

    // ── Jobs ────────────────────────────────────────────────────────────────────────────────────

    function post(uint256 seat, uint256 fee) external {
        (, uint32 owners) = network.slotsOf(modelId);
        (address owner, uint40 activeFrom, uint40 leftAt,) =
            network.seatOf(modelId, uint32(seat % 5));
        bool active = owner != address(0) && leftAt == 0 && activeFrom < vm.getBlockTimestamp();
        if (!active || owners < 4 || _cases.length >= 12) return;
        Case memory c = _order(1);
        c.job.maxFee = uint96(bound(fee, 1, MAX_FEE));
        (uint96 held, uint96 unlocking,) = network.depositOf(client, scheduler);
        if (held < uint256(c.job.maxFee) + unlocking) return;
        c.id = network.jobIdOf(c.job);
        c.parties[0] = _party(owner, 1, 0);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        _postWith(c, uint32(seat % 5), _commitment(c, 0), LOCK, signed, scheduler);
        _cases.push(abi.encode(c));
        _ids.push(c.id);
        _fees.push(c.job.maxFee);
        ++counts["post"];
    }

    function seal(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Posted);
        if (i == type(uint256).max || _late(c)) return;
        if (vm.getBlockNumber() > c.posting.postedBlock + 200) return;
        pass(12);
        if (_late(c)) return;
        _commit(c);
        if (_late(c)) return;
        _sealWith(c, scheduler);
        _cases[i] = abi.encode(c);
        ++counts["seal"];
    }

    function refund(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Posted);
        if (i == type(uint256).max || !_late(c)) return;
        network.refund(c.posting);
        ++counts["refund"];
    }

    function claim(uint256 which, uint256 verdict) external {
        (Case memory c, uint256 i) = _pick(which, Status.Sealed);
        if (i == type(uint256).max) return;
        if (vm.getBlockNumber() > c.sealing.sealedBlock + 200) return;
        pass(12);
        if (_late(c)) return;
        Outcome outcome = Outcome(1 + verdict % 4);
        uint8 reason = 0;
        if (outcome == Outcome.Refund || outcome == Outcome.Slash) reason = 1;
        if (outcome == Outcome.Inconclusive) reason = VerdictLib.DIVIDED;
        vm.recordLogs();
        vm.prank(claimer);
        network.claim(
            c.posting,
            c.sealing,
            outcome,
            reason,
            uint8(verdict >> 8) & 7,
            verdict & 0x1000 == 0 ? keccak256(abi.encode(keccak256(SHOWN))) : BUNDLE,
            new bytes[](0)
        );
        c.claiming = abi.decode(_logged(ILedger.Claimed.selector), (Claiming));
        _cases[i] = abi.encode(c);
        ++counts["claim"];
    }

    function finalize(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || !_late(c) || _isForced(c)) return;
        network.finalize(c.posting, c.sealing, c.claiming);
        ++counts["finalize"];
    }

    function challenge(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max) (c, i) = _pick(which, Status.Sealed);
        if (i == type(uint256).max) return;
        bool unclaimed = c.claiming.claimer == address(0);
        if (_late(c) != unclaimed && (unclaimed || !_isForced(c))) return;
        if (unclaimed) _unclaim(c);
        vm.prank(challenger);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        _cases[i] = abi.encode(c);
        ++counts["challenge"];
    }

    /// @dev Everybody opens but those with a bit in `silent`.
    function open(uint256 which, uint256 silent) external {
        (Case memory c, uint256 i) = _pick(which, Status.Challenged);
        if (i == type(uint256).max) return;
        (, uint40 openBy,) = network.jobState(c.id);
        if (vm.getBlockTimestamp() >= openBy - terms.openingWindow / 2) return;
        (, uint8 revealed,,,,) = adjudicator.roundOf(address(network), _record(c));
        if (revealed == 0) _reveal(c);
        uint256 who = 15 & ~(silent & (silent >> 4));
        if (who != 0) _compareAll(c, who);
        ++counts["open"];
    }

    function adjudicate(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Challenged);
        if (i == type(uint256).max) return;
        try network.adjudicate(c.posting, c.sealing, c.claiming) {
            ++counts["adjudicate"];
        } catch {
            (, uint40 openBy,) = network.jobState(c.id);
            require(
                vm.getBlockTimestamp() < openBy + terms.openingWindow, "every job can be finished"
            );
        }
    }

    function settle(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Judged);
        if (i == type(uint256).max || !_late(c)) return;
        network.settle(c.posting, c.sealing, c.claiming);
        ++counts["settle"];
    }

    function attest(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Challenged);
        if (i == type(uint256).max) (c, i) = _pick(which, Status.Judged);
        if (i == type(uint256).max) return;
        if (_status(c) == Status.Judged && _late(c)) return;
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 7);
        vm.prank(challenger);
        try network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words) {
            ++counts["attest"];
        } catch (bytes memory why) {
            require(bytes4(why) == ILedger.AlreadySupported.selector, "once only");
        }
    }

    // ── Bundles and proofs ──────────────────────────────────────────────────────────────────────

    function demand(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || _late(c)) return;
        vm.prank(challenger);
        try network.demand(c.posting, c.sealing, c.claiming) {
            ++counts["demand"];
        } catch (bytes memory why) {
            bool spent = bytes4(why) == ILedger.AlreadyServed.selector
                || bytes4(why) == ILedger.TooManyDemands.selector;
            require(spent, "a claim within its window can be asked for its bundle");
        }
    }

    function serveBundle(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Demanded);
        if (i == type(uint256).max || _late(c) || c.claiming.bundle == BUNDLE) return;
        bytes32[] memory hashes = new bytes32[](1);
        hashes[0] = keccak256(SHOWN);
        network.serveBundle(c.posting, c.sealing, c.claiming, 0, SHOWN, hashes);
        ++counts["serveBundle"];
    }

    function voidClaim(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Demanded);
        if (i == type(uint256).max || !_late(c)) return;
        _void(c, i);
        ++counts["voidClaim"];
    }

    /// @dev Anyone may be convicted, at any time, as often as it is tried: it costs at most the job's stake, once.
    function convict(uint256 which, uint256 who) external {
        if (_cases.length == 0) return;
        uint256 i = which % _cases.length;
        Case memory c = abi.decode(_cases[i], (Case));
        if (c.sealing.secret == 0) return;
        if (vm.getBlockTimestamp() >= c.posting.postedAt + terms.unbonding) return;
        uint256 party = [uint256(0), 255, 1, 2, 3][who % 5];
        bool ended = _statusOf(i) == Status.Final;
        if (!ended && party != 0 && party != 255) return;
        address owner = party == 255 ? scheduler : c.posting.worker;
        uint256 most = party == 255 ? c.posting.bond : c.posting.lock;
        if (party != 0 && party != 255) {
            owner = c.sealing.committee[party - 1].owner;
            most = c.sealing.committee[party - 1].lock;
        }
        uint256 before = _balance(owner);
        try network.convict(c.posting, c.sealing, c.claiming, uint8(party), 8, claimer) {
            ++counts["convict"];
            assertLe(before, _balance(owner) + most, "at most the job's stake");
        } catch (bytes memory why) {
            require(bytes4(why) == ILedger.AlreadyConvicted.selector, "once only");
        }
    }

    function overrule(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || (_late(c) && !_isForced(c))) return;
        Outcome said = c.claiming.outcome;
        if (said != Outcome.Accept && said != Outcome.Inconclusive) return;
        network.overrule(c.posting, c.sealing, c.claiming, challenger);
        ++counts["overrule"];
    }

    // ── What must hold ──────────────────────────────────────────────────────────────────────────

    function checkMoney() external view {
        uint256 sum = _deposited();
        for (uint256 i = 0; i < 9; ++i) {
            address operator = _operator(i);
            sum += _balance(operator);
            assertLe(_locked(operator), _balance(operator), "locked within the balance");
        }
        for (uint256 i = 0; i < _cases.length; ++i) {
            if (_statusOf(i) != Status.Final) sum += _fees[i];
        }
        uint256 held = token.balanceOf(address(network));
        assertEq(sum, held, "held = deposits + balances + escrow");
        assertEq(held + withdrawn + token.balanceOf(DEAD), minted, "in = held + out + burnt");
    }

    /// @dev Anyone alone, with nothing but events, ends every job; then nothing is locked.
    function finishAll() external {
        for (uint256 rounds = 0; rounds < 6; ++rounds) {
            pass(3 hours);
            for (uint256 i = 0; i < _cases.length; ++i) {
                _finish(i);
            }
        }
        for (uint256 i = 0; i < _cases.length; ++i) {
            assertEq(uint8(_statusOf(i)), uint8(Status.Final), "finished");
        }
        for (uint256 i = 0; i < 9; ++i) {
            assertEq(_locked(_operator(i)), 0, "unlocked");
        }
    }

    function _finish(uint256 i) private {
        Case memory c = abi.decode(_cases[i], (Case));
        Status status = _status(c);
        if (status == Status.Posted) network.refund(c.posting);
        bool forced = status == Status.Claimed && _isForced(c);
        if (status == Status.Claimed && !forced) {
            network.finalize(c.posting, c.sealing, c.claiming);
        }
        if (status == Status.Demanded) _void(c, i);
        if (status == Status.Challenged) network.adjudicate(c.posting, c.sealing, c.claiming);
        if (status == Status.Judged) network.settle(c.posting, c.sealing, c.claiming);
        if (status == Status.Sealed) _unclaim(c);
        if (status == Status.Sealed || forced) {
            network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
            _cases[i] = abi.encode(c);
        }
    }

    function _void(Case memory c, uint256 i) private {
        network.voidClaim(c.posting, c.sealing, c.claiming);
        _unclaim(c);
        _cases[i] = abi.encode(c);
    }

    /// @dev What a challenge without a claim runs over; a void claim left its beacon behind.
    function _unclaim(Case memory c) private view {
        bytes32 beacon = c.claiming.beacon;
        if (beacon == 0) beacon = blockhash(c.sealing.sealedBlock);
        c.claiming = Claiming(address(0), Outcome.None, 0, 0, 0, beacon);
    }

    function _isForced(Case memory c) private view returns (bool) {
        bytes32 draw = keccak256(abi.encode(SECRET, c.posting.commitment, c.sealing.beacon));
        return uint256(keccak256(abi.encode(draw, uint256(3)))) % terms.forcedEvery == 0;
    }

    function _operator(uint256 who) private view returns (address) {
        who %= 9;
        if (who < 5) return workers[who];
        return [scheduler, claimer, challenger, address(this)][who - 5];
    }

    function _pick(uint256 which, Status status) private view returns (Case memory c, uint256 i) {
        for (uint256 n = 0; n < _cases.length; ++n) {
            i = addmod(which, n, _cases.length);
            if (_statusOf(i) == status) return (abi.decode(_cases[i], (Case)), i);
        }
        return (c, type(uint256).max);
    }

    function _statusOf(uint256 i) private view returns (Status status) {
        (status,,) = network.jobState(_ids[i]);
    }

    function _late(Case memory c) private view returns (bool) {
        (, uint40 deadline,) = network.jobState(c.id);
        return vm.getBlockTimestamp() >= deadline;
    }
}
