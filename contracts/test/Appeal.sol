// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAppeals} from "../src/interfaces/IAppeals.sol";
import "../src/interfaces/ILedger.sol";
import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {Round} from "./Round.sol";
import {Vm} from "./Test.sol";
import {Trees} from "./Trees.sol";

/// @notice A network of twelve workers whose jobs have contents, and the way through a re-verification.
abstract contract Appeal is Round {
    uint256 internal constant OWNERS = 12;

    address internal requester;

    function setUp() public virtual override {
        super.setUp();
        requester = person("requester");
        _stake(requester, STAKE);
        for (uint256 i = workers.length; i < OWNERS; ++i) {
            (address worker, uint256 key) = account(string.concat("worker", vm.toString(i)));
            workers.push(worker);
            workerKeys.push(key);
            keys[worker] = key;
            _stake(worker, STAKE);
            vm.prank(worker);
            network.join(modelId, PRICE);
        }
        pass(12);
    }

    // ── Contents ────────────────────────────────────────────────────────────────────────────────

    /// @dev Tokens `from` up to `to` of any request, as every party's trace has them.
    function _tokens(uint256 from, uint256 to) internal pure returns (bytes memory tokens) {
        for (uint256 i = from; i < to; ++i) {
            tokens = abi.encodePacked(tokens, uint32(100 + i));
        }
    }

    function _requestLeaves(uint256 requests) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](requests);
        for (uint256 i = 0; i < requests; ++i) {
            bytes32 pieceSalt = sha256(abi.encodePacked(bytes32(i), uint32(0)));
            bytes32 root =
                sha256(abi.encodePacked(bytes1(0x00), uint8(5), pieceSalt, _tokens(0, PROMPT)));
            leaves[i] = sha256(
                abi.encodePacked(
                    bytes1(0x00),
                    uint8(3),
                    root,
                    uint32(PROMPT),
                    uint32(OUTPUT),
                    uint32(1e6),
                    uint32(0),
                    uint32(1e6),
                    uint32(0)
                )
            );
        }
    }

    function _outputLeaves(Case memory c) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](c.job.requests);
        bytes32 task = keccak256(abi.encode(SECRET, c.id, uint256(0)));
        bytes32 hash = sha256(abi.encodePacked(task, _tokens(PROMPT, PROMPT + OUTPUT)));
        for (uint256 i = 0; i < leaves.length; ++i) {
            leaves[i] = sha256(abi.encodePacked(bytes1(0x00), uint8(4), uint32(i), hash));
        }
    }

    function _outputsRoot(Case memory c) internal view virtual override returns (bytes32) {
        return Trees.root(_outputLeaves(c));
    }

    function _content(Case memory c, uint256 request)
        internal
        pure
        returns (Content memory content)
    {
        content.salt = bytes32(request);
        content.tokens = _tokens(0, PROMPT);
        content.maxNewTokens = uint32(OUTPUT);
        content.sampling = Sampling(1e6, 0, 1e6, 0);
        content.path = Trees.path(_requestLeaves(c.job.requests), request);
        content.output = _tokens(PROMPT, PROMPT + OUTPUT);
        content.outputPath = Trees.path(_outputLeaves(c), request);
    }

    function _contents(Case memory c) internal view returns (Content[] memory contents) {
        uint16[] memory checked = _checked(c);
        contents = new Content[](checked.length);
        for (uint256 i = 0; i < checked.length; ++i) {
            contents[i] = _content(c, checked[i]);
        }
    }

    // ── A job that can be appealed ──────────────────────────────────────────────────────────────

    /// @dev Sealed; the inferencer and the whole committee are of the kinds given.
    function _case(uint16 requests, Kind inferencer, Kind committee)
        internal
        returns (Case memory)
    {
        return _case(requests, inferencer, [committee, committee, committee]);
    }

    function _case(uint16 requests, Kind inferencer, Kind[3] memory committee)
        internal
        returns (Case memory c)
    {
        kinds[workers[0]] = inferencer;
        c = _order(requests);
        c.job.requestsRoot = Trees.root(_requestLeaves(requests));
        c.id = network.jobIdOf(c.job);
        _post(c);
        pass(12);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        for (uint256 i = 0; i < owners.length; ++i) {
            kinds[owners[i]] = committee[i];
        }
        _commit(c);
        _sealWith(c, scheduler);
    }

    // ── A re-verification ───────────────────────────────────────────────────────────────────────

    function _reverify(Case memory c) internal {
        pass(12);
        Content[] memory contents = _contents(c);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    /// @dev As the round sees it: the new members, then the first ones; the new ones have no commitment yet.
    function _convene(Case memory c) internal returns (Case memory d) {
        pass(12);
        network.convene(c.posting, c.sealing, c.claiming);
        (,, Member[] memory members) = network.appealOf(c.id);
        d = abi.decode(abi.encode(c), (Case));
        d.parties = new Party[](1 + members.length + c.sealing.committee.length);
        d.parties[0] = c.parties[0];
        for (uint256 i = 0; i < members.length; ++i) {
            Party memory party = _party(members[i].owner, _checked(c).length, i + 1);
            party.inner.taskHash = keccak256(
                abi.encode(
                    keccak256("AppealTask(bytes32 jobId,uint256 index,address owner)"),
                    c.id,
                    i,
                    members[i].owner
                )
            );
            _resetRoots(party);
            d.parties[i + 1] = party;
        }
        for (uint256 k = 1; k <= c.sealing.committee.length; ++k) {
            d.parties[members.length + k] = c.parties[k];
        }
    }

    /// @dev The new members with a bit in `who` commit; the time of the others passes.
    function _recommit(Case memory d, uint256 who) internal {
        uint256 size = d.parties.length - 1 - d.sealing.committee.length;
        for (uint256 i = 0; i < size; ++i) {
            if ((who >> i) & 1 == 0) continue;
            vm.prank(d.parties[i + 1].owner);
            network.recommit(d.id, i, d.parties[i + 1].inner);
        }
        if (who == (1 << size) - 1) return;
        pass(2 * uint256(terms.openingWindow));
        network.closeCommits(d.id);
    }

    /// @dev Opens the round over the values that `d` holds from now on.
    function _start(Case memory c, Case memory d) internal {
        pass(12);
        vm.recordLogs();
        network.startRound(c.posting, c.sealing, c.claiming);
        (Sealing memory sealing, bytes32 beacon,) =
            abi.decode(_logged(IAppeals.RoundStarted.selector), (Sealing, bytes32, uint256));
        d.sealing = sealing;
        d.claiming = Claiming(address(0), Outcome.None, 0, 0, 0, beacon);
    }

    /// @dev From the question up to an open round, with everybody committed.
    function _opened(Case memory c) internal returns (Case memory d) {
        _reverify(c);
        d = _convene(c);
        _recommit(d, (1 << (d.parties.length - 1 - c.sealing.committee.length)) - 1);
        _start(c, d);
    }

    /// @dev The whole of it, all parties opening but those without a bit in `who`.
    function _heard(Case memory c, uint256 who) internal returns (Case memory d) {
        d = _opened(c);
        _reveal(d);
        _compareAll(d, who & ((1 << d.parties.length) - 1));
    }

    /// @dev Up to when locks may be taken for states.
    function _untilDue(Case memory c) internal {
        (, uint40 openBy,) = network.jobState(c.id);
        vm.warp(openBy);
    }

    function _conclude(Case memory c)
        internal
        returns (Outcome outcome, uint8 reason, bool stands, uint8 strangers)
    {
        vm.recordLogs();
        network.conclude(c.posting, c.sealing, c.claiming);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == IAppeals.Concluded.selector) {
                return abi.decode(logs[i].data, (Outcome, uint8, bool, uint8));
            }
        }
        revert("not concluded");
    }

    function _assertNothingLocked() internal view {
        for (uint256 i = 0; i < workers.length; ++i) {
            assertEq(_locked(workers[i]), 0, "unlocked");
        }
        assertEq(_locked(scheduler), 0, "unlocked");
        assertEq(_locked(claimer), 0, "unlocked");
        assertEq(_locked(requester), 0, "unlocked");
    }

    /// @dev Nothing appeared or is lost: what people hold, what waits in deposits, what burnt.
    function _assertConserved() internal view {
        uint256 sum = _deposited() + _balance(scheduler) + _balance(claimer) + _balance(challenger)
            + _balance(requester) + _balance(address(this));
        for (uint256 i = 0; i < workers.length; ++i) {
            sum += _balance(workers[i]);
        }
        assertEq(sum, token.balanceOf(address(network)), "held");
    }
}
