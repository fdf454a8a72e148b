// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {HashLib} from "../../src/libraries/HashLib.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {People} from "./People.sol";

/// @notice Jobs that are judged again, by people as they are: workers that are honest, captured or lazy, a claimer that
/// claims whatever it likes, a requester that asks without cause and supplies nothing, a prover that convicts whoever
/// is guilty. The honest do what they must before time passes, and whoever is framed asks for a second committee.
contract Second is People {
    address private constant DEAD = 0x000000000000000000000000000000000000dEaD;
    uint256 private constant MOST_JOBS = 6;

    // ── Time ────────────────────────────────────────────────────────────────────────────────────

    /// @dev The honest act first: nobody else decides when they do.
    function wait_(uint256 time) external {
        _act();
        pass(bound(time, 12, 40 minutes));
        ++counts["wait"];
    }

    // ── Jobs ────────────────────────────────────────────────────────────────────────────────────

    function post(uint256 seat, uint256 fee) external {
        if (_cases.length >= MOST_JOBS) return;
        Case memory c = _order(1);
        c.job.maxFee = uint96(bound(fee, 1, MAX_FEE));
        c.job.requestsRoot = _requestLeaves(1)[0];
        c.id = network.jobIdOf(c.job);
        uint32 place = uint32(seat % OWNERS);
        if (_away[place]) return;
        c.parties[0] = _party(workers[place], 1, 0);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        _postWith(c, _slots[place], _commitment(c, 0), LOCK, signed, scheduler);
        _cases.push(abi.encode(c));
        _rounds.push("");
        Notes storage notes = _notes.push();
        (notes.id, notes.fee) = (c.id, c.job.maxFee);
        ++counts["post"];
    }

    function seal(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Posted);
        if (i == type(uint256).max || _late(c)) return;
        if (vm.getBlockNumber() > c.posting.postedBlock + 200) return;
        _commit(c);
        if (_late(c)) return;
        _sealWith(c, scheduler);
        _cases[i] = abi.encode(c);
        ++counts["seal"];
    }

    function claim(uint256 which, uint256 verdict) external {
        (Case memory c, uint256 i) = _pick(which, Status.Sealed);
        if (i == type(uint256).max || _late(c)) return;
        if (vm.getBlockNumber() > c.sealing.sealedBlock + 200) return;
        uint8[5] memory reasons = [0, 1, 1, VerdictLib.WITHHELD, VerdictLib.DIVIDED];
        uint8[5] memory outcomes = [1, 2, 3, 3, 4];
        Outcome outcome = Outcome(outcomes[verdict % 5]);
        pass(12);
        if (_late(c)) return;
        vm.recordLogs();
        vm.prank(claimer);
        network.claim(
            c.posting,
            c.sealing,
            outcome,
            reasons[verdict % 5],
            uint8(verdict >> 8) & 1,
            BUNDLE,
            new bytes[](0)
        );
        c.claiming = abi.decode(_logged(ILedger.Claimed.selector), (Claiming));
        _cases[i] = abi.encode(c);
        _notes[i].standing = outcome;
        ++counts["claim"];
    }

    function finalize(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || !_late(c)) return;
        network.finalize(c.posting, c.sealing, c.claiming);
        ++counts["finalize"];
    }

    // ── The first round ─────────────────────────────────────────────────────────────────────────

    function challenge(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || _late(c)) return;
        vm.prank(challenger);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        ++counts["challenge"];
    }

    function open(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Challenged);
        if (i != type(uint256).max) _open(c, i);
    }

    function adjudicate(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Challenged);
        if (i != type(uint256).max) _adjudicate(c, i);
    }

    function settle(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Judged);
        if (i == type(uint256).max || !_late(c)) return;
        network.settle(c.posting, c.sealing, c.claiming);
        ++counts["settle"];
    }

    // ── The second committee ────────────────────────────────────────────────────────────────────

    /// @dev Without cause, and with the contents or without.
    function ask(uint256 which, bool whole) external {
        (Case memory c, uint256 i) = _pick(which, whole ? Status.Claimed : Status.Judged);
        if (i == type(uint256).max) (c, i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || _late(c)) return;
        Content[] memory contents = whole ? _contents(c) : new Content[](0);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
        ++counts[whole ? "ask" : "ask for nothing"];
    }

    function supply(uint256 which) external {
        (Case memory c, uint256 i) = _pickAt(which, AppealPhase.Asked);
        if (i != type(uint256).max && !_late(c)) _supply(c);
    }

    function convene(uint256 which) external {
        (Case memory c, uint256 i) = _pickAt(which, AppealPhase.Complete);
        if (i != type(uint256).max) _conveneIn(c, i);
    }

    function recommit(uint256 which, uint256 who) external {
        (Case memory c, uint256 i) = _pickAt(which, AppealPhase.Convened);
        if (i != type(uint256).max && !_late(c)) _recommitBy(i, who);
    }

    function closeCommits(uint256 which) external {
        (Case memory c, uint256 i) = _pickAt(which, AppealPhase.Convened);
        if (i == type(uint256).max || !_late(c)) return;
        network.closeCommits(c.id);
        ++counts["closeCommits"];
    }

    function start(uint256 which) external {
        (Case memory c, uint256 i) = _pickAt(which, AppealPhase.Closed);
        if (i != type(uint256).max) _startIn(c, i);
    }

    function openAgain(uint256 which) external {
        (Case memory c, uint256 i) = _pickAt(which, AppealPhase.Opened);
        if (i != type(uint256).max) _openAgain(c, i);
    }

    function conclude(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Reverifying);
        if (i != type(uint256).max) _concludeIn(c);
    }

    // ── What is said of the tokens ──────────────────────────────────────────────────────────────

    function attest(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Challenged);
        if (i == type(uint256).max) (c, i) = _pick(which, Status.Judged);
        if (i == type(uint256).max) (c, i) = _pick(which, Status.Reverifying);
        if (i == type(uint256).max || !_wouldSpeak(c)) return;
        if (_statusOf(i) == Status.Judged && _late(c)) return;
        bytes[] memory words = new bytes[](1);
        words[0] = _signed(c.parties[1], HashLib.hashAttestation(c.id, Outcome.Refund, 7, BUNDLE));
        vm.prank(challenger);
        try network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words) {
            _spokenAgainst(c, i);
            ++counts["attest"];
        } catch (bytes memory why) {
            require(bytes4(why) == ILedger.AlreadySupported.selector, "once only");
        }
    }

    /// @dev By the committee's states, which a captured one may have nudged.
    function overrule(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Claimed);
        if (i == type(uint256).max || _late(c) || !_wouldSpeak(c)) return;
        Outcome said = c.claiming.outcome;
        if (said != Outcome.Accept && said != Outcome.Inconclusive) return;
        network.overrule(c.posting, c.sealing, c.claiming, challenger);
        _spokenAgainst(c, i);
        ++counts["overrule"];
    }

    // ── Seats ───────────────────────────────────────────────────────────────────────────────────

    /// @dev As many stay as the largest committee and those who may be left out of it.
    function leave(uint256 who) external {
        uint256 i = who % OWNERS;
        if (_away[i] || _present() <= 8) return;
        vm.prank(workers[i]);
        network.leave(modelId, _slots[i]);
        _away[i] = true;
        ++counts["leave"];
    }

    function join(uint256 who) external {
        uint256 i = who % OWNERS;
        if (!_away[i] || _balance(workers[i]) < (_bound[i] + 1) * SEAT) return;
        vm.prank(workers[i]);
        _slots[i] = network.join(modelId, PRICE);
        _away[i] = false;
        ++_bound[i];
        pass(12); // a seat serves from the next block on
        ++counts["join"];
    }

    // ── Proofs ──────────────────────────────────────────────────────────────────────────────────

    /// @dev The guilty alone: proofs against the honest do not exist (docs/protocol.md §8).
    function convict(uint256 which, bool scheduler_) external {
        if (_cases.length == 0) return;
        uint256 i = which % _cases.length;
        Case memory c = _case(i);
        if (c.sealing.secret == 0 || (!scheduler_ && _isHonest(c.posting.worker))) return;
        if (vm.getBlockTimestamp() >= c.posting.postedAt + terms.unbonding) return;
        address owner = scheduler_ ? scheduler : c.posting.worker;
        uint256 most = scheduler_ ? c.posting.bond : c.posting.lock;
        uint256 before = _balance(owner);
        bool again = _statusOf(i) == Status.Reverifying;
        try network.convict(c.posting, c.sealing, c.claiming, scheduler_ ? 255 : 0, 8, claimer) {
            ++counts[again ? "convict meanwhile" : "convict"];
            assertLe(before, _balance(owner) + most, "at most the job's stake");
        } catch (bytes memory why) {
            require(bytes4(why) == ILedger.AlreadyConvicted.selector, "once only");
        }
    }

    /// @dev A member's fault waits for the end, and takes what other jobs have not locked.
    function convictMember(uint256 which) external {
        (Case memory c, uint256 i) = _pick(which, Status.Final);
        if (i == type(uint256).max || c.sealing.secret == 0) return;
        address owner = c.sealing.committee[0].owner;
        bool late = vm.getBlockTimestamp() >= c.posting.postedAt + terms.unbonding;
        if (_isHonest(owner) || late) return;
        uint256 before = _balance(owner);
        try network.convict(c.posting, c.sealing, c.claiming, 1, 12, claimer) {
            ++counts["convict a member"];
            assertLe(before, _balance(owner) + LOCK, "at most its lock");
            assertLe(_locked(owner), _balance(owner), "of what is free");
        } catch (bytes memory why) {
            require(bytes4(why) == ILedger.AlreadyConvicted.selector, "once only");
        }
    }

    /// @dev What no proof does: whether it would be seen.
    function convictTheHonest(uint256 which) external {
        Case memory c = _case(which);
        assertTrue(_isHonest(c.posting.worker), "an honest worker");
        network.convict(c.posting, c.sealing, c.claiming, 0, 8, claimer);
    }

    /// @dev Money that comes from nowhere.
    function leak() external {
        token.mint(address(network), 1);
    }

    // ── What must hold ──────────────────────────────────────────────────────────────────────────

    function checkMoney() external view {
        uint256 sum = _deposited();
        for (uint256 i = 0; i < OWNERS + 5; ++i) {
            address operator = _operator(i);
            sum += _balance(operator);
            assertLe(_locked(operator), _balance(operator), "locked within the balance");
        }
        for (uint256 i = 0; i < _notes.length; ++i) {
            if (_statusOf(i) != Status.Final) sum += _notes[i].fee;
        }
        uint256 held = token.balanceOf(address(network));
        assertEq(sum, held, "held = deposits + balances + escrow");
        assertEq(held + token.balanceOf(DEAD), token.totalSupply(), "in = held + burnt");
    }

    /// @dev Nobody honest has less than it brought; seats stay whose they are.
    function checkHonest() external view {
        (uint32 slots, uint32 owners) = network.slotsOf(modelId);
        assertEq(owners, _present(), "owners");
        uint256 bound = 0;
        for (uint256 i = 0; i < OWNERS; ++i) {
            (,, uint256 staked,,,) = network.accountOf(workers[i]);
            assertEq(staked, _bound[i] * SEAT, "its seats' stake");
            bound += _bound[i];
            (address owner,, uint40 leftAt,) = network.seatOf(modelId, _slots[i]);
            assertEq(owner, workers[i], "its seat");
            assertEq(leftAt != 0, _away[i], "left");
            if (!_isHonest(workers[i])) continue;
            assertGe(_balance(workers[i]) + _allowed[workers[i]], STAKE, "an honest worker lost");
        }
        assertEq(slots, bound, "a slot a seat");
    }

    /// @dev Whatever was done: within the windows of one job anyone ends every job, and then nothing is locked.
    function finishAll() external {
        for (uint256 rounds = 0; rounds < 9; ++rounds) {
            _act();
            pass(terms.openingWindow / 2 + 12);
            _act();
            pass(terms.openingWindow / 2);
            for (uint256 i = 0; i < _cases.length; ++i) {
                _finish(i);
            }
        }
        for (uint256 i = 0; i < _cases.length; ++i) {
            assertEq(uint8(_statusOf(i)), uint8(Status.Final), "finished");
        }
        for (uint256 i = 0; i < OWNERS + 5; ++i) {
            assertEq(_locked(_operator(i)), 0, "unlocked");
        }
    }
}
