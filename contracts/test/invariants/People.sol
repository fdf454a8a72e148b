// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {Appeal} from "../Appeal.sol";

/// @notice Workers that are honest, captured or lazy, in jobs of one member first and three anew: the smallest network
/// that can be appealed in, and the cheapest to open.
abstract contract People is Appeal {
    /// @dev What a test knows of a job beside its values: what stands of it, who has opened or committed what it must.
    struct Notes {
        JobId id;
        uint96 fee;
        Outcome standing;
        bool opened;
        bool committed;
        bool openedAgain;
        bool spoken;
    }

    /// @dev Encoded: nested lists do not go into storage. The second round's values stand beside the job's own.
    bytes[] internal _cases;
    bytes[] internal _rounds;
    Notes[] internal _notes;
    mapping(address worker => bool) internal _lazy;
    /// @dev What an honest worker may have lost: by a committee without an honest majority, or as wages for its question.
    mapping(address worker => uint256) internal _allowed;
    /// @dev By worker: the slot of its one active seat, whether it has none, and how many seats its stake is bound for.
    uint32[OWNERS] internal _slots;
    bool[OWNERS] internal _away;
    uint256[OWNERS] internal _bound;
    mapping(string action => uint256) public counts;

    function setUp() public override {
        super.setUp();
        kinds[workers[4]] = Kind.Captured;
        kinds[workers[5]] = Kind.Captured;
        _lazy[workers[6]] = true;
        kinds[workers[7]] = Kind.Infinite;
        for (uint32 i = 0; i < OWNERS; ++i) {
            (_slots[i], _bound[i]) = (i, 1);
        }
    }

    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.hidden = 16;
        spec.sliceDims = 16;
        spec.checkedRequests = 1;
        spec.committee = 1;
    }

    // ── What the honest do ──────────────────────────────────────────────────────────────────────

    function _act() internal {
        for (uint256 i = 0; i < _cases.length; ++i) {
            // One thing leads to another: question, committee, commitments, round, openings.
            for (uint256 n = 0; n < 5; ++n) {
                Status status = _statusOf(i);
                if (status != Status.Final && status != Status.Posted && status != Status.Sealed) {
                    _actIn(_case(i), i, status);
                }
            }
        }
    }

    function _actIn(Case memory c, uint256 i, Status status) internal {
        bool late = _late(c);
        if (status == Status.Challenged) _open(c, i);
        if (status != Status.Reverifying) {
            bool standing = status == Status.Claimed || status == Status.Judged;
            if (standing && !late && _isFramed(c, i)) _appeal(c);
            return;
        }
        (AppealPhase phase,,) = network.appealOf(c.id);
        // What everybody must do, whatever it is about.
        if (phase == AppealPhase.Convened && !late && !_notes[i].committed) _recommitBy(i, 0);
        if (phase == AppealPhase.Opened) _openAgain(c, i);
        // What only who is framed cares for.
        if (!_isFramed(c, i)) return;
        if (phase == AppealPhase.Asked && !late) _supply(c);
        if (phase == AppealPhase.Complete) _conveneIn(c, i);
        if (phase == AppealPhase.Convened && late) network.closeCommits(c.id);
        if (phase == AppealPhase.Closed) _startIn(c, i);
    }

    /// @dev Its money back or more is what an overturned claim leaves it; half the bond are the wages otherwise.
    function _appeal(Case memory c) internal {
        Content[] memory contents = _contents(c);
        vm.prank(c.posting.worker);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
        _allowed[c.posting.worker] += terms.reverifyBond / 2;
        ++counts["appeal"];
    }

    /// @dev Who is captured opens as well: its states are why it should not.
    function _open(Case memory c, uint256 i) internal {
        if (_notes[i].opened) return;
        (, uint40 openBy,) = network.jobState(c.id);
        if (vm.getBlockTimestamp() + terms.openingWindow / 2 >= openBy) return;
        uint256 who = _opening(c);
        if (who & 1 != 0) {
            _reveal(c);
            _compareAll(c, who);
        }
        _notes[i].opened = true;
        ++counts["open"];
    }

    function _openAgain(Case memory c, uint256 i) internal {
        if (_notes[i].openedAgain) return;
        (, uint40 openBy,) = network.jobState(c.id);
        if (vm.getBlockTimestamp() + terms.openingWindow / 2 >= openBy) return;
        Case memory d = abi.decode(_rounds[i], (Case));
        uint256 who = _opening(d) & _committedIn(c.id);
        if (who & 1 != 0) {
            _reveal(d);
            _compareAll(d, who);
        }
        _notes[i].openedAgain = true;
        ++counts["openAgain"];
    }

    /// @dev Parties that open, by bit.
    function _opening(Case memory c) internal view returns (uint256 who) {
        for (uint256 k = 0; k < c.parties.length; ++k) {
            if (!_lazy[c.parties[k].owner]) who |= 1 << k;
        }
    }

    /// @dev Parties of a second round that committed: all but new members without a commitment.
    function _committedIn(JobId id) internal view returns (uint256 who) {
        (,, Member[] memory members) = network.appealOf(id);
        who = type(uint256).max;
        for (uint256 k = 0; k < members.length; ++k) {
            if (members[k].inner == 0) who &= ~(uint256(2) << k);
        }
    }

    // ── Steps ───────────────────────────────────────────────────────────────────────────────────

    function _adjudicate(Case memory c, uint256 i) internal {
        vm.recordLogs();
        try network.adjudicate(c.posting, c.sealing, c.claiming) {
            (Outcome outcome,,,,) = abi.decode(
                _logged(ILedger.Judged.selector), (Outcome, uint8, uint8, uint8, uint256)
            );
            _notes[i].standing = outcome;
            ++counts["adjudicate"];
        } catch {
            (, uint40 openBy,) = network.jobState(c.id);
            require(vm.getBlockTimestamp() < openBy + terms.openingWindow, "can be judged");
        }
    }

    function _supply(Case memory c) internal {
        network.supply(c.posting, c.sealing, c.claiming, _contents(c));
        ++counts["supply"];
    }

    /// @dev A committee of three without two honest ones is what nothing here can help against.
    function _conveneIn(Case memory c, uint256 i) internal {
        pass(12);
        if (_late(c)) return;
        Case memory d;
        try this.convened(abi.encode(c)) returns (bytes memory encoded) {
            _rounds[i] = encoded;
            d = abi.decode(encoded, (Case));
        } catch (bytes memory why) {
            return _requireLost(why);
        }
        uint256 honest = 0;
        for (uint256 k = 1; k < d.parties.length - 1; ++k) {
            if (_isHonest(d.parties[k].owner)) ++honest;
        }
        if (honest < 2) {
            _allowed[c.posting.worker] += LOCK + terms.reverifyBond;
            _allowed[c.sealing.committee[0].owner] += LOCK;
        }
        ++counts["convene"];
    }

    /// @dev The honest commit, and of the others who has a bit in `who`; not twice.
    function _recommitBy(uint256 i, uint256 who) internal {
        Case memory d = abi.decode(_rounds[i], (Case));
        (,, Member[] memory members) = network.appealOf(d.id);
        for (uint256 k = 0; k < members.length; ++k) {
            bool does = _isHonest(members[k].owner) || (who >> k) & 1 != 0;
            if (members[k].inner != 0 || !does) continue;
            vm.prank(members[k].owner);
            network.recommit(d.id, k, d.parties[k + 1].inner);
        }
        _notes[i].committed = true;
        ++counts["recommit"];
    }

    function _startIn(Case memory c, uint256 i) internal {
        pass(12);
        if (_late(c)) return;
        try this.started(abi.encode(c), _rounds[i]) returns (bytes memory encoded) {
            _rounds[i] = encoded;
            ++counts["start"];
        } catch (bytes memory why) {
            _requireLost(why);
        }
    }

    /// @dev By itself alone, so that what reverts is caught.
    function convened(bytes calldata job) external returns (bytes memory) {
        return abi.encode(_convene(abi.decode(job, (Case))));
    }

    /// @dev The same of a round.
    function started(bytes calldata job, bytes calldata again) external returns (bytes memory) {
        Case memory d = abi.decode(again, (Case));
        _start(abi.decode(job, (Case)), d);
        return abi.encode(d);
    }

    /// @dev Who waits for longer than the chain knows a block's hash for, and kept it nowhere, waits in vain.
    function _requireLost(bytes memory why) internal pure {
        require(bytes4(why) == ILedger.BeaconUnavailable.selector, "another reason");
    }

    function _concludeIn(Case memory c) internal {
        (AppealPhase phase,,) = network.appealOf(c.id);
        try network.conclude(c.posting, c.sealing, c.claiming) {
            ++counts[phase == AppealPhase.Opened ? "conclude" : "conclude unheard"];
        } catch {
            (, uint40 deadline,) = network.jobState(c.id);
            bool early = vm.getBlockTimestamp() < deadline + terms.openingWindow;
            require(early || phase == AppealPhase.Convened, "can be concluded");
        }
    }

    function _finish(uint256 i) internal {
        Case memory c = _case(i);
        Status status = _status(c);
        bool late = _late(c);
        if (status == Status.Posted && late) network.refund(c.posting);
        if (status == Status.Claimed && late) network.finalize(c.posting, c.sealing, c.claiming);
        if (status == Status.Challenged) _adjudicate(c, i);
        if (status == Status.Judged && late) network.settle(c.posting, c.sealing, c.claiming);
        if (status == Status.Sealed && late) {
            c.claiming =
                Claiming(address(0), Outcome.None, 0, 0, 0, blockhash(c.sealing.sealedBlock));
            network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
            _cases[i] = abi.encode(c);
        }
        if (status != Status.Reverifying) return;
        (AppealPhase phase,,) = network.appealOf(c.id);
        if (phase == AppealPhase.Convened && late) network.closeCommits(c.id);
        else if (phase != AppealPhase.Convened) _concludeIn(c);
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    function _isHonest(address who) internal view returns (bool) {
        return kinds[who] == Kind.Honest && !_lazy[who];
    }

    function _isFramed(Case memory c, uint256 i) internal view returns (bool) {
        Outcome outcome = _notes[i].standing;
        // What was said of the tokens refunds whatever a larger committee finds: nobody asks it then.
        bool against = outcome == Outcome.Slash || (outcome == Outcome.Refund && !_notes[i].spoken);
        return against && _isHonest(c.posting.worker);
    }

    /// @dev A captured member's word refunds an honest inferencer's job, and what it asked for may be in vain.
    function _spokenAgainst(Case memory c, uint256 i) internal {
        _notes[i].spoken = true;
        if (_notes[i].standing != Outcome.Slash && _statusOf(i) == Status.Judged) {
            _notes[i].standing = Outcome.Refund;
        }
        if (!_isHonest(c.posting.worker)) return;
        _allowed[c.posting.worker] += c.sealing.fee + terms.reverifyBond;
    }

    /// @dev Nobody honest says that honest tokens are not.
    function _wouldSpeak(Case memory c) internal view returns (bool) {
        return !_isHonest(c.posting.worker) || !_isHonest(c.sealing.committee[0].owner);
    }

    function _present() internal view returns (uint256 count) {
        for (uint256 i = 0; i < OWNERS; ++i) {
            if (!_away[i]) ++count;
        }
    }

    function _operator(uint256 who) internal view returns (address) {
        if (who < OWNERS) return workers[who];
        return [scheduler, claimer, challenger, requester, address(this)][who - OWNERS];
    }

    function _case(uint256 i) internal view returns (Case memory) {
        return abi.decode(_cases[i], (Case));
    }

    function _pick(uint256 which, Status status) internal view returns (Case memory c, uint256 i) {
        for (uint256 n = 0; n < _cases.length; ++n) {
            i = addmod(which, n, _cases.length);
            if (_statusOf(i) == status) return (_case(i), i);
        }
        return (c, type(uint256).max);
    }

    function _pickAt(uint256 which, AppealPhase wanted)
        internal
        view
        returns (Case memory c, uint256 i)
    {
        for (uint256 n = 0; n < _cases.length; ++n) {
            i = addmod(which, n, _cases.length);
            if (_statusOf(i) != Status.Reverifying) continue;
            (AppealPhase phase,,) = network.appealOf(_notes[i].id);
            if (phase == wanted) return (_case(i), i);
        }
        return (c, type(uint256).max);
    }

    function _statusOf(uint256 i) internal view returns (Status status) {
        (status,,) = network.jobState(_notes[i].id);
    }

    function _late(Case memory c) internal view returns (bool) {
        (, uint40 deadline,) = network.jobState(c.id);
        return vm.getBlockTimestamp() >= deadline;
    }
}
