// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {Network} from "./Network.sol";
import {Round} from "./Round.sol";
import {Supplying} from "./Supplying.sol";
import {Work} from "./Work.sol";

/// @notice What the calls of a job cost as transactions: calldata and the 21 000 included, warm balances.
/// @dev Each call is its own transaction (`isolate`), so that slots are as cold as on a chain.
/// forge-config: default.isolate = true
contract GasTest is Round {
    uint256 private _total;

    function test_jobOfOneRequest_costsUnder450kInAll() public {
        _total = 0;
        _happyPath(1, "one request");
        assertLt(_total, 450_000);
    }

    function test_jobOf256Requests_costsUnder3kARequest() public {
        _total = 0;
        _happyPath(256, "256 requests");
        assertLt(_total / 256, 3000);
    }

    function test_otherCalls() public {
        Case memory c = _order(1);
        _post(c);
        pass(terms.sealWindow);
        network.refund(c.posting);
        _note("refund", "other");
        vm.prank(workers[0]);
        network.join(modelId, PRICE);
        _note("join", "other");
        vm.prank(workers[0]);
        network.leave(modelId, 5);
        _note("leave", "other");
        vm.prank(workers[0]);
        network.setHotKey(person("hot"));
        _note("setHotKey", "other");
    }

    function _happyPath(uint16 requests, string memory group) private {
        // A first job, so that no balance and no nonce word is new.
        Case memory c = _job(requests, "");
        c = _job(requests, group);
    }

    function _job(uint16 requests, string memory group) private returns (Case memory c) {
        c = _order(requests);
        _post(c);
        _note("post", group);
        _seal(c);
        _note("seal", group);
        _claim(c, Outcome.Accept, 0);
        _note("claim", group);
        pass(terms.disputeWindow);
        vm.prank(scheduler);
        network.finalize(c.posting, c.sealing, c.claiming);
        _note("finalize", group);
    }

    function _note(string memory call, string memory group) private {
        if (bytes(group).length == 0) return;
        _total += vm.snapshotGasLastCall(group, call);
    }

    function _party(address owner, uint256 items, uint256 number)
        internal
        view
        virtual
        override
        returns (Party memory)
    {
        return Network._party(owner, items, number);
    }
}

/// @notice What a public round costs, at the default model's width and at a wide one.
/// forge-config: default.isolate = true
contract RoundGasTest is Round {
    uint32 private _hidden = 576;

    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.hidden = _hidden;
        spec.sliceDims = 256;
        spec.depth = 30;
        spec.committedLayers = new uint16[](3);
        for (uint16 i = 0; i < 3; ++i) {
            spec.committedLayers[i] = 8 * (i + 1);
        }
        spec.profile = _profile(4);
    }

    function test_publicRound_takesUnder15MInACall() public {
        Case memory c = _sealed(1);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _note("challenge", "round at 576");
        _reveal(c);
        _note("reveal", "round at 576");
        uint32[] memory positions = _positions(c, 0);
        _serve(c, 1, 0, 0, positions[0]);
        _note("serve one", "round at 576");
        _compare(c, 3, 0, 0, positions[0]);
        _note("compare two", "round at 576");
        _compare(c, 15, 0, 1, positions[1]);
        _note("compare four", "round at 576");
        _compare(c, 15, 0, 0, positions[0]);
        _compare(c, 15, 0, 2, positions[2]);
        _compare(c, 15, 0, 3, positions[3]);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        _note("adjudicate", "round at 576");
        pass(terms.disputeWindow);
        network.settle(c.posting, c.sealing, c.claiming);
        _note("settle", "round at 576");
    }

    function test_publicRound_ofAWideModel_takesUnder15MInACall() public {
        _hidden = 8192;
        modelId = network.registerModel(_spec());
        _note("registerModel", "round at 8192");
        for (uint256 i = 0; i < 5; ++i) {
            vm.prank(workers[i]);
            network.join(modelId, PRICE);
        }
        pass(12);
        Case memory c = _sealed(1);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        uint32[] memory positions = _positions(c, 0);
        _compare(c, 3, 0, 0, positions[0]);
        _note("compare two", "round at 8192");
        _serve(c, 2, 0, 0, positions[0]);
        _note("serve one", "round at 8192");
    }

    function _note(string memory call, string memory group) private {
        assertLt(vm.snapshotGasLastCall(group, call), 15_000_000);
    }
}

/// @notice What summons and claims of unposted tasks cost, at a prompt of 8192 tokens; calldata and its floor included.
/// @dev Isolated calls are charged like transactions, so a floor (EIP-7623) above the execution would show.
/// forge-config: default.isolate = true
contract SummonsGasTest is Work {
    uint256 private constant LIMIT = 15_000_000;

    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.context = 16_384;
    }

    function test_summonsOf8kTokens_costLessThan15M() public {
        Case memory c = _order(1);
        _post(c);
        pass(12);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        bytes32 taskId = keccak256(abi.encode(SECRET, c.id, uint256(1)));
        uint256 deadline = vm.getBlockTimestamp() + 1 days;
        Given memory given = _given(taskId, owners[0], 1, 8192, 1, deadline);
        ModelSpec memory spec = _spec();
        vm.prank(scheduler);
        network.summon(
            c.posting,
            SECRET,
            c.parties[0].inner,
            0,
            spec,
            given.task,
            given.items,
            given.tokens,
            given.signature
        );
        assertLt(vm.snapshotGasLastCall("summons", "summon, 8192 tokens"), LIMIT);
        uint256 snapshot = vm.snapshotState();
        Made memory made = _made(given, 1, keys[owners[0]]);
        network.answer(c.id, 0, made.inner, made.signature);
        assertLt(vm.snapshotGasLastCall("summons", "answer"), LIMIT);
        vm.revertToState(snapshot);
        pass(terms.openingWindow + 1000);
        network.replace(c.posting, 0);
        assertLt(vm.snapshotGasLastCall("summons", "replace"), LIMIT);
        pass(2 * terms.sealWindow);
        network.dismiss(c.posting);
        assertLt(vm.snapshotGasLastCall("summons", "dismiss"), LIMIT);
    }

    function test_claimsOf2kNewTokens_costLessThan15M() public {
        Case memory c = _order(1);
        bytes32 taskId = keccak256(abi.encode(SECRET, c.id, uint256(0)));
        Given memory given =
            _given(taskId, workers[0], 1, 8192, 2048, vm.getBlockTimestamp() - terms.sealWindow);
        Made memory made = _made(given, 2048, keys[workers[0]]);
        c.parties[0].inner = made.inner;
        network.claimTask(
            given.task,
            given.items,
            scheduler,
            0,
            made.inner,
            made.leaves,
            made.outputs,
            [given.signature, made.signature]
        );
        assertLt(vm.snapshotGasLastCall("summons", "claimTask, 2048 new tokens"), LIMIT);
        uint256 snapshot = vm.snapshotState();
        _post(c);
        network.contestTask(made.commitment, c.posting, c.sealing, c.claiming);
        assertLt(vm.snapshotGasLastCall("summons", "contestTask"), LIMIT);
        vm.revertToState(snapshot);
        vm.prank(scheduler);
        network.postClaimed(c.job, c.quote, made.commitment);
        assertLt(vm.snapshotGasLastCall("summons", "postClaimed"), LIMIT);
        vm.revertToState(snapshot);
        pass(terms.unbonding);
        network.collectTask(made.commitment);
        assertLt(vm.snapshotGasLastCall("summons", "collectTask"), LIMIT);
    }
}

/// @notice What the texts of a re-verification cost, as transactions; calldata and its floor included.
/// forge-config: default.isolate = true
contract SupplyGasTest is Supplying {
    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.context = 16_384;
    }

    function test_suppliesOf8kTokens_costLessThan15M() public {
        Case memory c = _claimedJob(_sane(8192 - 512, 512));
        _reverify(c, new Content[](0));
        network.supply(c.posting, c.sealing, c.claiming, _all());
        assertLt(vm.snapshotGasLastCall("summons", "supply, 8192 tokens"), 15_000_000);
    }
}
