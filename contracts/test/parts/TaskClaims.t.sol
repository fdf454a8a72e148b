// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/IWages.sol";
import "../../src/interfaces/Types.sol";
import {HashLib} from "../../src/libraries/HashLib.sol";
import {MerkleLib} from "../../src/libraries/MerkleLib.sol";
import {Trees} from "../Trees.sol";
import {Work} from "../Work.sol";

contract TaskClaimsTest is Work {
    uint96 internal constant DUE = 0.22 ether; // 2 × (6 + 5) tokens at the seat's price

    // ── A scheduler that streams and never posts ────────────────────────────────────────────────

    function test_claimTask_locksBothSides() public {
        (, Given memory given, Made memory made) = _streamed();
        _claimTask(given, made);
        assertEq(_locked(scheduler), DUE, "price of the seat x tokens");
        assertEq(_locked(workers[0]), LOCK, "exposure");
        (address owing, address worker, bytes32 taskId, uint96 amount, uint96 exposure, uint40 at) =
            network.taskClaimOf(made.commitment);
        assertEq(owing, scheduler);
        assertEq(worker, workers[0]);
        assertEq(taskId, given.task.taskId);
        assertEq(amount, DUE);
        assertEq(exposure, LOCK);
        assertEq(at, vm.getBlockTimestamp() + terms.unbonding);
    }

    function test_claimTask_isAtMostTheTasksFee() public {
        (Case memory c, Given memory given,) = _streamed();
        given.task.fee = 0.1 ether;
        _sign(given);
        Made memory made = _made(given, 5, keys[workers[0]]);
        _claimTask(given, made);
        assertEq(_locked(scheduler), 0.1 ether);
        assertEq(c.job.maxFee, MAX_FEE);
    }

    function test_claimTask_takesOnlyWhatIsFreeOfTheScheduler() public {
        (, Given memory given, Made memory made) = _streamed();
        (uint96 balance,,,,,) = network.accountOf(scheduler);
        vm.prank(scheduler);
        network.requestStakeWithdrawal(balance - 0.05 ether);
        _claimTask(given, made);
        assertEq(_locked(scheduler), 0.05 ether);
    }

    function test_collectTask_paysFromTheSchedulersStake() public {
        (, Given memory given, Made memory made) = _streamed();
        _claimTask(given, made);
        pass(terms.unbonding);
        vm.prank(person("stranger"));
        network.collectTask(made.commitment);
        assertEq(_balance(workers[0]), STAKE + DUE);
        assertEq(_balance(scheduler), STAKE - DUE);
        assertEq(_locked(workers[0]) + _locked(scheduler), 0);
        _expect(abi.encodeWithSelector(IWages.ClaimUnknown.selector, made.commitment));
        network.collectTask(made.commitment);
    }

    function test_collectTask_revertsBeforeUnbonding() public {
        (, Given memory given, Made memory made) = _streamed();
        _claimTask(given, made);
        uint256 at = vm.getBlockTimestamp() + terms.unbonding;
        vm.warp(at - 1);
        _expect(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, at));
        network.collectTask(made.commitment);
    }

    // ── A scheduler that posted ─────────────────────────────────────────────────────────────────

    function test_contestTask_byAnEarlierPostCostsTheWorkerWhatItWanted() public {
        (Case memory c, Given memory given, Made memory made) = _streamed();
        _postMade(c, made);
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        assertEq(_balance(workers[0]), STAKE - DUE, "burnt");
        assertEq(_balance(scheduler), STAKE);
        assertEq(_locked(workers[0]), LOCK, "the job's own lock stays");
        assertEq(_locked(scheduler), c.posting.bond);
    }

    function test_contestTask_byALaterPostCostsNothing() public {
        (Case memory c, Given memory given, Made memory made) = _streamed();
        given.task.deadline = uint40(vm.getBlockTimestamp() - terms.sealWindow);
        _sign(given);
        made = _made(given, 5, keys[workers[0]]);
        c.parties[0].inner = made.inner;
        _claimNow(given, made);
        pass(12);
        _postMade(c, made);
        _contest(made.commitment, c);
        assertEq(_balance(workers[0]), STAKE);
        assertEq(_locked(workers[0]), LOCK);
    }

    /// @notice Paid by the job and by the claim: the second is refused whatever has become of the first.
    function test_contestTask_worksAtEveryStageOfTheJob() public {
        for (uint256 stage = 0; stage < 4; ++stage) {
            uint256 snapshot = vm.snapshotState();
            (Case memory c, Given memory given, Made memory made) = _streamed();
            _postMade(c, made);
            if (stage > 0) _seal(c);
            if (stage > 1) _claim(c, Outcome.Accept, 0);
            if (stage > 2) _finalize(c);
            uint256 before = _balance(workers[0]);
            _late(given);
            _claimNow(given, made);
            _contest(made.commitment, c);
            assertEq(_balance(workers[0]), before - DUE);
            vm.revertToState(snapshot);
        }
    }

    function test_contestTask_byASealThatHoldsAMembersCommitment() public {
        (Case memory c, uint256 k, Given memory given, Made memory made) = _sealedMember();
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        // 10 + 1 tokens of one item.
        assertEq(_balance(c.sealing.committee[k - 1].owner), STAKE - 0.11 ether, "burnt");
    }

    function test_contestTask_byASealThatHoldsAnotherCommitmentOfTheSameMember() public {
        (Case memory c, uint256 k, Given memory given, Made memory made) = _sealedMember();
        address owner = c.sealing.committee[k - 1].owner;
        made.leaves[0].traceRoot = OUTPUTS;
        _commit(given, made, keys[owner]);
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        assertEq(_balance(owner), STAKE - 0.11 ether, "burnt");
    }

    function test_contestTask_byAnotherCommitmentOfTheSameInferencer() public {
        (Case memory c, Given memory given, Made memory made) = _streamed();
        _postMade(c, made);
        _seal(c);
        made.leaves[0].traceRoot = OUTPUTS;
        _commit(given, made, keys[workers[0]]);
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        assertEq(_balance(workers[0]), STAKE - DUE, "burnt");
    }

    /// @notice Whoever keeps silent and claims for made-up tokens is not paid beside the one who did the work.
    function test_contestTask_byAnothersAcceptedOutputEndsTheClaim() public {
        (Case memory c, Given memory given, Made memory made) = _superseded(false);
        _claimNow(given, made);
        uint256 before = _balance(workers[1]);
        _contest(made.commitment, c);
        assertEq(_balance(workers[1]), before, "no fine");
        assertEq(_locked(workers[1]) + _locked(scheduler), 0);
    }

    /// @notice A scheduler cannot have a friend post what the worker computed.
    function test_contestTask_revertsForAnothersPostOfTheSameOutput() public {
        (Case memory c, Given memory given, Made memory made) = _superseded(true);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, c);
    }

    function test_contestTask_revertsForAnothersOutputThatWasNotAccepted() public {
        (Case memory c, Given memory given) = _failedOver();
        _postOther(c);
        _seal(c);
        Made memory made = _made(given, 5, keys[workers[1]]);
        _late(given);
        uint256 snapshot = vm.snapshotState();
        _claimNow(given, made);
        _expectNotContested(made.commitment); // not claimed
        _contest(made.commitment, c);
        vm.revertToState(snapshot);
    }

    function test_contestTask_revertsForARejectedOutputOfAnother() public {
        (Case memory c, Given memory given) = _failedOver();
        _postOther(c);
        _seal(c);
        _claim(c, Outcome.Refund, 1);
        _finalize(c);
        _late(given);
        Made memory made = _made(given, 5, keys[workers[1]]);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, c);
    }

    /// @notice A task's id is what its scheduler says: a job that is over cannot answer for other requests.
    function test_contestTask_revertsForOtherRequestsUnderTheSameId() public {
        (Case memory c, Given memory given) = _failedOver();
        _postOther(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        given.items[1].salt = OUTPUTS;
        _sign(given);
        Made memory made = _made(given, 5, keys[workers[1]]);
        _late(given);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, c);
    }

    /// @notice What the claim of the other job said is not how it ended.
    function test_contestTask_revertsForAnAcceptThatWasOverturned() public {
        (Case memory c, Given memory given) = _failedOver();
        _postOther(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        vm.prank(challenger);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        pass(2 * terms.openingWindow);
        network.adjudicate(c.posting, c.sealing, c.claiming); // nobody opened: withheld
        pass(terms.disputeWindow);
        network.settle(c.posting, c.sealing, c.claiming);
        Made memory made = _made(given, 5, keys[workers[1]]);
        _late(given);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, c);
    }

    /// @notice Whoever was given a member's task and is none did not commit twice.
    function test_contestTask_revertsForAMembersTaskInAnothersHands() public {
        (Case memory c,, Given memory given,) = _sealedMember();
        given.task.worker = workers[0]; // the inferencer, which is no member
        _sign(given);
        Made memory made = _made(given, 1, keys[workers[0]]);
        _late(given);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, c);
    }

    function test_contestTask_revertsForAJobThatSaysNothingOfIt() public {
        (, Given memory given, Made memory made) = _streamed();
        Case memory other = _sealed(1);
        _late(given);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, other);
        other.posting.lock += 1;
        _expect(abi.encodeWithSelector(ILedger.RecordMismatch.selector, other.id));
        _contest(made.commitment, other);
        _expect(abi.encodeWithSelector(IWages.ClaimUnknown.selector, OUTPUTS));
        _contest(OUTPUTS, other);
    }

    /// @notice Who was summoned, kept silent and was replaced has no claim on the task.
    function test_contestTask_byThePanelThatPutTheMemberOut() public {
        Case memory c = _order(1);
        _post(c);
        pass(12);
        bytes32 taskId = HashLib.taskId(SECRET, c.id, 1);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        Given memory given = _given(taskId, owners[0], 1, 10, 1, vm.getBlockTimestamp() + 2 hours);
        vm.prank(scheduler);
        network.summon(
            c.posting,
            SECRET,
            c.parties[0].inner,
            0,
            _spec(),
            given.task,
            given.items,
            given.tokens,
            given.signature
        );
        Made memory made = _made(given, 1, keys[owners[0]]);
        uint256 snapshot = vm.snapshotState();
        _late(given);
        _claimNow(given, made);
        _expectNotContested(made.commitment); // it was never replaced
        _contest(made.commitment, c);
        vm.revertToState(snapshot);
        pass(terms.openingWindow + 2);
        network.replace(c.posting, 0);
        snapshot = vm.snapshotState();
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        assertEq(_balance(owners[0]), STAKE - LOCK - 0.11 ether, "burnt");
        vm.revertToState(snapshot);
        given.task.worker = workers[0]; // who was never drawn for it
        _sign(given);
        made = _made(given, 1, keys[workers[0]]);
        _late(given);
        _claimNow(given, made);
        _expectNotContested(made.commitment);
        _contest(made.commitment, c);
    }

    // ── A job that could not pay ────────────────────────────────────────────────────────────────

    /// @notice A client in league with its scheduler signs a maxFee of next to nothing: the scheduler owes the rest.
    function test_contestTask_revertsForAJobThatCouldNotPayForTheWork() public {
        (Case memory c, Given memory given, Made memory made) = _streamedFor(DUE - 1);
        _postMade(c, made);
        _seal(c);
        _late(given);
        _claimNow(given, made);
        _expectUnderpriced(DUE - 1, DUE);
        _contest(made.commitment, c);
        pass(terms.unbonding);
        network.collectTask(made.commitment);
        assertEq(_balance(workers[0]), STAKE + DUE);
        assertEq(_balance(scheduler), STAKE - DUE);
    }

    function test_contestTask_byAJobThatCouldJustPay() public {
        (Case memory c, Given memory given, Made memory made) = _streamedFor(DUE);
        _postMade(c, made);
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        assertEq(_balance(workers[0]), STAKE - DUE, "burnt");
    }

    function test_contestTask_byAJobThatCouldPayWhatItsTaskNamed() public {
        for (uint256 missing = 0; missing < 2; ++missing) {
            uint256 snapshot = vm.snapshotState();
            uint96 fee = DUE / 2;
            (Case memory c, Given memory given,) = _streamedFor(fee - uint96(missing));
            given.task.fee = fee;
            _sign(given);
            Made memory made = _made(given, 5, keys[workers[0]]);
            c.parties[0].inner = made.inner;
            _postMade(c, made);
            _late(given);
            _claimNow(given, made);
            if (missing == 1) _expectUnderpriced(fee - 1, fee);
            _contest(made.commitment, c);
            vm.revertToState(snapshot);
        }
    }

    /// @notice What a member generated is no part of the job, so that no honest job is dearer than its maxFee.
    function test_contestTask_byASealOfAJobThatCouldPayForTheTextAMemberRead() public {
        for (uint256 missing = 0; missing < 2; ++missing) {
            uint256 snapshot = vm.snapshotState();
            uint96 text = 10 * PRICE;
            (Case memory c, uint256 k, Given memory given, Made memory made) =
                _sealedMemberFor(text - uint96(missing));
            _late(given);
            _claimNow(given, made);
            if (missing == 1) _expectUnderpriced(text - 1, text);
            _contest(made.commitment, c);
            if (missing == 0) {
                assertEq(_balance(c.sealing.committee[k - 1].owner), STAKE - 11 * PRICE, "burnt");
            }
            vm.revertToState(snapshot);
        }
    }

    function test_contestTask_revertsForAnothersOutputOfAJobThatCouldNotPay() public {
        (Case memory c, Given memory given,) = _streamedFor(DUE - 1);
        given.task.worker = workers[1];
        _sign(given);
        Made memory made = _made(given, 5, keys[workers[1]]);
        _postOther(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        _late(given);
        _claimNow(given, made);
        _expectUnderpriced(DUE - 1, DUE);
        _contest(made.commitment, c);
    }

    /// @notice Who committed twice to one task has no claim, whatever its job could pay.
    function test_contestTask_byAJobThatCouldNotPayStillRefutes() public {
        (Case memory c, Given memory given, Made memory made) = _streamedFor(1);
        _postMade(c, made);
        _seal(c);
        made.leaves[0].traceRoot = OUTPUTS;
        _commit(given, made, keys[workers[0]]);
        _late(given);
        _claimNow(given, made);
        _contest(made.commitment, c);
        assertEq(_balance(workers[0]), STAKE - DUE, "burnt");
    }

    function test_postClaimed_revertsForAJobThatCouldNotPayForTheWork() public {
        (Case memory c, Given memory given, Made memory made) = _streamedFor(DUE - 1);
        _claimTask(given, made);
        vm.prank(scheduler);
        _expectUnderpriced(DUE - 1, DUE);
        network.postClaimed(c.job, c.quote, made.commitment);
        (c, given, made) = _streamedFor(DUE);
        _claimTask(given, made);
        _postClaimed(c, made);
    }

    // ── Tokens that a worker made up ────────────────────────────────────────────────────────────

    function test_postClaimed_letsACommitteeJudgeTheClaim() public {
        uint256 deposited = _deposited();
        (Case memory c, Given memory given, Made memory made) = _streamed();
        _claimTask(given, made);
        _postClaimed(c, made);
        assertEq(_locked(workers[0]), LOCK, "the exposure is the job's lock");
        assertEq(_locked(scheduler), c.posting.bond);
        assertEq(_balance(scheduler), STAKE - MAX_FEE, "in escrow");
        _seal(c);
        _claim(c, Outcome.Slash, 1);
        _finalize(c);
        assertEq(_balance(workers[0]), STAKE - LOCK, "slashed");
        assertEq(_deposited(), deposited + MAX_FEE, "what the job does not use is the client's");
        assertEq(_locked(workers[0]) + _locked(scheduler), 0);
        _expect(abi.encodeWithSelector(IWages.ClaimUnknown.selector, made.commitment));
        network.collectTask(made.commitment);
    }

    function test_postClaimed_paysHonestWorkOnce() public {
        (Case memory c, Given memory given, Made memory made) = _streamed();
        _claimTask(given, made);
        _postClaimed(c, made);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        assertEq(_balance(workers[0]), STAKE + uint256(DUE) * 7000 / 10_000);
        _expect(abi.encodeWithSelector(IWages.AlreadyClaimed.selector, made.commitment));
        _claimNow(given, made);
    }

    function test_postClaimed_revertsForAnyOtherCallerJobOrTerms() public {
        (Case memory c, Given memory given, Made memory made) = _streamed();
        _expect(abi.encodeWithSelector(IWages.ClaimUnknown.selector, made.commitment));
        network.postClaimed(c.job, c.quote, made.commitment);
        _claimTask(given, made);
        _expect(abi.encodeWithSelector(ILedger.NotOperator.selector, address(this)));
        network.postClaimed(c.job, c.quote, made.commitment);
        c.quote.scheduler = claimer;
        _expectMismatch(c, made);
        c.quote.scheduler = scheduler;
        c.quote.modelId = ModelId.wrap(OUTPUTS);
        c.job.quote = _quoteHash(c.quote);
        _expectMismatch(c, made);
        c.quote.modelId = modelId;
        _expectMismatch(c, made); // the job names another quote
        c.job.quote = _quoteHash(c.quote);
        c.job.maxFee = LOCK;
        vm.prank(scheduler);
        _expect(abi.encodeWithSelector(ILedger.LockTooSmall.selector, LOCK, 2 * LOCK));
        network.postClaimed(c.job, c.quote, made.commitment);
    }

    function test_postClaimed_revertsForAJobThatIsPosted() public {
        (Case memory c, Given memory given, Made memory made) = _streamed();
        _postMade(c, made);
        _late(given);
        _claimNow(given, made);
        vm.prank(scheduler);
        _expect(
            abi.encodeWithSelector(ILedger.StatusWrong.selector, c.id, Status.Posted, Status.None)
        );
        network.postClaimed(c.job, c.quote, made.commitment);
    }

    // ── Refusals ────────────────────────────────────────────────────────────────────────────────

    function test_claimTask_revertsOutsideItsTime() public {
        (, Given memory given, Made memory made) = _streamed();
        uint256 from = uint256(given.task.deadline) + terms.sealWindow;
        vm.warp(from - 1);
        _expect(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, from));
        _claimNow(given, made);
        vm.warp(from + terms.unbonding);
        _expect(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, from + terms.unbonding));
        _claimNow(given, made);
    }

    function test_claimTask_revertsTwice() public {
        (, Given memory given, Made memory made) = _streamed();
        _claimTask(given, made);
        _expect(abi.encodeWithSelector(IWages.AlreadyClaimed.selector, made.commitment));
        _claimNow(given, made);
    }

    function test_claimTask_revertsWithoutBothSignatures() public {
        (, Given memory given, Made memory made) = _streamed();
        _late(given);
        bytes memory good = given.signature;
        given.signature = made.signature;
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, scheduler));
        _claimNow(given, made);
        given.signature = good;
        made.signature = good;
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, workers[0]));
        _claimNow(given, made);
    }

    function test_claimTask_revertsWithoutStakeOnEitherSide() public {
        (, Given memory given, Made memory made) = _streamed();
        vm.prank(scheduler);
        network.requestStakeWithdrawal(STAKE);
        _late(given);
        _expect(abi.encodeWithSelector(ILedger.StakeInsufficient.selector, scheduler, 0, DUE));
        _claimNow(given, made);
        vm.prank(scheduler);
        network.requestStakeWithdrawal(1);
        vm.prank(workers[0]);
        network.requestStakeWithdrawal(STAKE - SEAT);
        uint256 snapshot = vm.snapshotState();
        _claimNow(given, made); // its seat's stake stands for it
        assertEq(_locked(workers[0]), LOCK);
        vm.revertToState(snapshot);
        given.task.lock = SEAT + 1;
        _sign(given);
        made = _made(given, 5, keys[workers[0]]);
        _expect(
            abi.encodeWithSelector(ILedger.StakeInsufficient.selector, workers[0], SEAT, SEAT + 1)
        );
        _claimNow(given, made);
    }

    function test_claimTask_revertsForAnothersSeat() public {
        (, Given memory given, Made memory made) = _streamed();
        _late(given);
        _expect(abi.encodeWithSelector(ILedger.SeatNotOwned.selector, modelId, 1, workers[0]));
        network.claimTask(
            given.task,
            given.items,
            scheduler,
            1,
            made.inner,
            made.leaves,
            made.outputs,
            [given.signature, made.signature]
        );
    }

    function test_claimTask_revertsForWorkThatDoesNotHangTogether() public {
        (, Given memory given, Made memory made) = _streamed();
        _late(given);
        given.task.fee += 1;
        _refuse(given, made, "taskHash");
        given.task.fee -= 1;
        made.inner.items = 3;
        _refuse(given, made, "items");
        made.inner.items = 2;
        given.items[1].seed = OUTPUTS;
        _refuse(given, made, "items");
        given.items[1].seed = keccak256(abi.encode("seed", 1));
        made.leaves[1].item = 0;
        _refuse(given, made, "item");
        made.leaves[1].item = 1;
        made.leaves[1].promptTokens = 7;
        _refuse(given, made, "promptTokens");
        made.leaves[1].promptTokens = 6;
        made.leaves[1].newTokens = 0;
        _refuse(given, made, "newTokens");
        made.leaves[1].newTokens = 9;
        _refuse(given, made, "newTokens");
        made.leaves[1].newTokens = 6;
        _refuse(given, made, "outputs");
        made.leaves[1].newTokens = 5;
        made.outputs[1][3] ^= 0x01;
        _refuse(given, made, "outputHash");
        made.outputs[1][3] ^= 0x01;
        made.inner.promptTokens += 1;
        _refuse(given, made, "promptTokens");
        made.inner.promptTokens -= 1;
        made.inner.newTokens += 1;
        _refuse(given, made, "newTokens");
        made.inner.newTokens -= 1;
        made.leaves[1].traceRoot = OUTPUTS;
        _refuse(given, made, "itemsRoot");
        made.leaves = new ItemLeaf[](1);
        _refuse(given, made, "leaves");
        made = _made(given, 5, keys[workers[0]]);
        made.outputs = new bytes[](1);
        _refuse(given, made, "outputs");
    }

    function test_claimTask_revertsForATaskOfNothing() public {
        (, Given memory given, Made memory made) = _streamed();
        given.items = new Item[](0);
        _sign(given);
        made.inner.taskHash = hashes.task(given.task);
        made.inner.items = 0;
        _late(given);
        _refuse(given, made, "items");
    }

    function test_fuzz_claimTask_paysPriceTimesTokensAtMostTheFee(
        uint8 length,
        uint8 tokens,
        uint96 fee
    ) public {
        (, Given memory given,) = _streamed();
        uint32 count = uint32(bound(tokens, 1, 40));
        given = _given(given.task.taskId, workers[0], 1, uint32(bound(length, 1, 200)), 40, 1000);
        given.task.deadline = uint40(vm.getBlockTimestamp());
        given.task.fee = uint96(bound(fee, 1, MAX_FEE));
        _sign(given);
        Made memory made = _made(given, count, keys[workers[0]]);
        _late(given);
        _claimNow(given, made);
        uint256 due = uint256(PRICE) * (uint256(given.items[0].length) + count);
        assertEq(_locked(scheduler), due < given.task.fee ? due : given.task.fee);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    /// @dev A job of two requests that worker 0 has run: 6 + 5 tokens each. Nothing is posted.
    function _streamed() private returns (Case memory, Given memory, Made memory) {
        return _streamedFor(MAX_FEE);
    }

    function _streamedFor(uint96 maxFee)
        private
        returns (Case memory c, Given memory given, Made memory made)
    {
        c = _order(2);
        c.job.maxFee = maxFee;
        given = _given(0, workers[0], 2, 6, 8, vm.getBlockTimestamp() + 100);
        c.job.requestsRoot = _requestsRoot(given);
        c.id = network.jobIdOf(c.job);
        given.task.taskId = HashLib.taskId(SECRET, c.id, 0);
        _sign(given);
        made = _made(given, 5, keys[workers[0]]);
        c.parties[0].inner = made.inner;
    }

    /// @dev The task was worker 1's, which said nothing; worker 0 did it.
    function _failedOver() private returns (Case memory c, Given memory given) {
        (c, given,) = _streamed();
        given.task.worker = workers[1];
        _sign(given);
    }

    function _superseded(bool copied)
        private
        returns (Case memory c, Given memory given, Made memory made)
    {
        (c, given) = _failedOver();
        made = _made(given, 5, keys[workers[1]]);
        if (copied) _postWithOutputs(c, _outputsRoot(made));
        else _postOther(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        _late(given);
    }

    function _postOther(Case memory c) private {
        c.posting = _posting(c, OUTPUTS);
    }

    function _postWithOutputs(Case memory c, bytes32 root) private {
        c.posting = _posting(c, root);
    }

    function _postMade(Case memory c, Made memory made) private {
        c.posting = _posting(c, _outputsRoot(made));
    }

    function _posting(Case memory c, bytes32 root) private returns (Posting memory) {
        bytes memory clientSigned = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        bytes memory signed = _signed(c.parties[0], commitment);
        vm.recordLogs();
        vm.prank(scheduler);
        network.post(c.job, c.quote, 0, commitment, root, LOCK, clientSigned, signed);
        return abi.decode(_logged(ILedger.Posted.selector), (Posting));
    }

    function _postClaimed(Case memory c, Made memory made) private {
        vm.recordLogs();
        vm.prank(scheduler);
        JobId jobId = network.postClaimed(c.job, c.quote, made.commitment);
        assertEq(JobId.unwrap(jobId), JobId.unwrap(c.id));
        c.posting = abi.decode(_logged(ILedger.Posted.selector), (Posting));
        assertEq(c.posting.outputsRoot, _outputsRoot(made));
    }

    /// @dev A sealed job, and what member k was given and made of it.
    function _sealedMember() private returns (Case memory, uint256, Given memory, Made memory) {
        return _sealedMemberFor(MAX_FEE);
    }

    function _sealedMemberFor(uint96 maxFee)
        private
        returns (Case memory c, uint256 k, Given memory given, Made memory made)
    {
        c = _order(1);
        c.job.maxFee = maxFee;
        c.id = network.jobIdOf(c.job);
        _post(c);
        _commit(c);
        k = 2;
        address owner = c.parties[k].owner;
        bytes32 taskId = HashLib.taskId(SECRET, c.id, k);
        given = _given(taskId, owner, 1, 10, 1, vm.getBlockTimestamp() + 100);
        made = _made(given, 1, keys[owner]);
        c.parties[k].inner = made.inner;
        _sealWith(c, scheduler);
    }

    function _outputsRoot(Made memory made) private pure returns (bytes32) {
        bytes32[] memory leaves = new bytes32[](made.leaves.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            leaves[i] = MerkleLib.leaf(
                MerkleLib.OUTPUTS, abi.encodePacked(uint32(i), made.leaves[i].outputHash)
            );
        }
        return Trees.root(leaves);
    }

    /// @dev To the time from which the task may be claimed, at least.
    function _late(Given memory given) private {
        uint256 from = uint256(given.task.deadline) + terms.sealWindow;
        uint256 now_ = vm.getBlockTimestamp();
        pass(now_ < from ? from - now_ : 12);
    }

    function _claimTask(Given memory given, Made memory made) private {
        _late(given);
        _claimNow(given, made);
    }

    function _claimNow(Given memory given, Made memory made) private {
        (uint32 seat, address worker) = (0, given.task.worker);
        for (uint32 i = 0; i < 5; ++i) {
            if (workers[i] == worker) seat = i;
        }
        network.claimTask(
            given.task,
            given.items,
            scheduler,
            seat,
            made.inner,
            made.leaves,
            made.outputs,
            [given.signature, made.signature]
        );
    }

    function _expectUnderpriced(uint256 maxFee, uint256 least) private {
        _expect(abi.encodeWithSelector(IWages.Underpriced.selector, maxFee, least));
    }

    function _refuse(Given memory given, Made memory made, bytes32 field) private {
        _expect(abi.encodeWithSelector(IWages.WorkInvalid.selector, field));
        _claimNow(given, made);
    }

    function _contest(bytes32 commitment, Case memory c) private {
        network.contestTask(commitment, c.posting, c.sealing, c.claiming);
    }

    function _expectNotContested(bytes32 commitment) private {
        _expect(abi.encodeWithSelector(IWages.NotContested.selector, commitment));
    }

    function _expectMismatch(Case memory c, Made memory made) private {
        vm.prank(scheduler);
        _expect(abi.encodeWithSelector(ILedger.QuoteMismatch.selector));
        network.postClaimed(c.job, c.quote, made.commitment);
    }

    function _expect(bytes memory failure) private {
        vm.expectRevert(failure);
    }
}
