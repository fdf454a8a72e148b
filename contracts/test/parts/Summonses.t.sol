// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/ISummons.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {HashLib} from "../../src/libraries/HashLib.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Work} from "../Work.sol";

contract SummonsesTest is Work {
    // ── Summons and answer ──────────────────────────────────────────────────────────────────────

    function test_summon_drawsTheCommitteeThatSealWould() public {
        Case memory c = _posted(1);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        _summon(c, _task(c, 1, 1));
        (uint256 size, uint256 replaced) = network.panelOf(c.id);
        assertEq(size, 3);
        assertEq(replaced, 0);
        for (uint256 i = 0; i < 3; ++i) {
            (address owner,, uint16 number,, uint40 answerBy,,) = network.placeOf(c.id, i);
            assertEq(owner, owners[i], "owner");
            assertEq(number, i + 1, "number");
            assertEq(answerBy != 0, i == 1, "only the one");
        }
        assertEq(uint8(_status(c)), uint8(Status.Summoned));
    }

    function test_summon_locksTheMemberAndTheFee() public {
        Case memory c = _posted(1);
        address owner = _ownerAt(c, 0);
        uint256 before = _locked(scheduler);
        _summon(c, _task(c, 0, 1));
        assertEq(_locked(owner), LOCK, "member");
        assertEq(_locked(scheduler), before + terms.answerFee, "scheduler");
    }

    function test_summon_movesTheDeadlineOfTheSeal() public {
        Case memory c = _posted(1);
        pass(30 minutes);
        _summon(c, _task(c, 0, 1));
        (, uint40 deadline,) = network.jobState(c.id);
        // 10 tokens and a new one are a second of work, then the window to send, then the one to seal.
        uint256 answerBy = vm.getBlockTimestamp() + 1 + terms.openingWindow;
        assertEq(deadline, answerBy + terms.sealWindow);
    }

    function test_summon_queuesTheWorkOfOneMember() public {
        Case memory c = _posted(2);
        Case memory d = _posted(2);
        uint256 own = 0; // of somebody drawn for both
        while (_indexOf(d, _ownerAt(c, own)) == 3) ++own;
        uint256 index = _indexOf(d, _ownerAt(c, own));
        _summon(c, _taskOf(c, own, 2, 4000));
        _summon(d, _taskOf(d, index, 2, 50));
        (,,,, uint40 first,,) = network.placeOf(c.id, own);
        (,,,, uint40 second,,) = network.placeOf(d.id, index);
        assertEq(first, vm.getBlockTimestamp() + 161 + terms.openingWindow, "8020 tokens");
        assertEq(second, first + 3, "120 tokens, after the others");
    }

    function test_answer_paysTheFeeAndKeepsTheCommitment() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 2, 1);
        _summon(c, given);
        address owner = given.task.worker;
        Made memory made = _made(given, 1, keys[owner]);
        pass(12);
        vm.prank(person("stranger"));
        network.answer(c.id, 2, made.inner, made.signature);
        assertEq(_balance(owner), STAKE + terms.answerFee, "member");
        assertEq(_balance(scheduler), STAKE - terms.answerFee, "scheduler");
        (,,,,,, bytes32 inner) = network.placeOf(c.id, 2);
        assertEq(inner, HashLib.hashInner(made.inner));
    }

    function test_answer_countsLateWhileThePlaceIsItsOwn() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        _summon(c, given);
        pass(terms.openingWindow + 2);
        _answer(c, 0, given);
        _expect(abi.encodeWithSelector(ISummons.AlreadyAnswered.selector, 0));
        network.replace(c.posting, 0);
    }

    // ── Replacement ─────────────────────────────────────────────────────────────────────────────

    function test_replace_burnsTheLockAndTakesTheNextOfTheStream() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        _summon(c, given);
        uint256 held = token.balanceOf(address(network));
        pass(terms.openingWindow + 2);
        network.replace(c.posting, 0);
        address silent = given.task.worker;
        assertEq(_balance(silent), STAKE - LOCK, "silent");
        assertEq(_locked(silent), 0);
        assertEq(token.balanceOf(address(network)), held - LOCK, "burnt");
        assertEq(_locked(scheduler), c.posting.bond, "fee is free again");
        (address owner,, uint16 number, uint96 lock, uint40 answerBy,,) = network.placeOf(c.id, 0);
        assertEq(number, 4, "the next number");
        assertEq(network.taskNumberOf(c.id, 1), 4);
        assertEq(network.taskNumberOf(c.id, 2), 2);
        assertTrue(owner != silent && owner != workers[0]);
        assertTrue(owner != _placeOwner(c, 1) && owner != _placeOwner(c, 2));
        assertEq(lock + answerBy, 0, "asked like any other");
    }

    function test_sealSummoned_takesAnswersAndSignatures() public {
        Case memory c = _posted(1);
        Given memory silent = _task(c, 0, 1);
        Given memory answering = _task(c, 1, 1);
        _summon(c, silent);
        _summon(c, answering);
        Made memory made = _answer(c, 1, answering);
        pass(terms.openingWindow + 2);
        network.replace(c.posting, 0);
        _sealSummoned(c);
        assertEq(uint8(_status(c)), uint8(Status.Sealed));
        assertEq(c.sealing.committee[1].inner, HashLib.hashInner(made.inner), "answered");
        assertEq(c.sealing.committee[0].owner, _placeOwner(c, 0), "the new one");
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(c.sealing.committee[i].lock, LOCK, "locked once");
            assertEq(_locked(c.sealing.committee[i].owner), LOCK);
        }
        assertEq(_locked(scheduler), c.posting.bond, "no fee left");
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_locked(c.sealing.committee[i].owner), 0);
        }
        assertEq(_locked(scheduler), 0);
    }

    function test_sealSummoned_freesTheFeeOfWhoSignedAfterAll() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        _sealSummoned(c);
        assertEq(c.sealing.committee[0].lock, LOCK);
        assertEq(_locked(c.sealing.committee[0].owner), LOCK, "locked once");
        assertEq(_locked(scheduler), c.posting.bond);
    }

    function test_sealSummoned_isAnybodys() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        _fill(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _signedPlaces(c);
        vm.prank(person("stranger"));
        network.sealSummoned(c.posting, c.parties[0].inner, inners, signatures);
        assertEq(uint8(_status(c)), uint8(Status.Sealed));
    }

    function test_dismiss_paysWhoAnsweredFromTheBond() public {
        uint256 deposited = _deposited();
        Case memory c = _posted(1);
        Given memory answering = _task(c, 1, 1);
        _summon(c, _task(c, 0, 1));
        _summon(c, answering);
        _answer(c, 1, answering);
        pass(terms.openingWindow + terms.sealWindow + 2);
        network.dismiss(c.posting);
        uint256 share = MAX_FEE * 7000 / uint256(10_000);
        uint256 each = MAX_FEE * 2000 / uint256(10_000) / 3;
        assertEq(_balance(workers[0]), STAKE + share, "inferencer");
        assertEq(_balance(_placeOwner(c, 1)), STAKE + each + terms.answerFee, "answered");
        assertEq(_balance(_placeOwner(c, 0)), STAKE - LOCK, "kept silent");
        assertEq(_balance(_placeOwner(c, 2)), STAKE, "never asked");
        assertEq(_balance(scheduler), STAKE - c.posting.bond - terms.answerFee, "scheduler");
        assertEq(_deposited(), deposited, "client");
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_locked(_placeOwner(c, i)), 0);
        }
        assertEq(_locked(scheduler) + _locked(workers[0]), 0);
        assertEq(uint8(_status(c)), uint8(Status.Final));
    }

    // ── Refusals ────────────────────────────────────────────────────────────────────────────────

    function test_aSummonedJob_isNeitherSealedNorRefundedAsUsual() public {
        Case memory c = _posted(1);
        _commit(c);
        _summon(c, _task(c, 0, 1));
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        bytes memory wrong = abi.encodeWithSelector(
            ILedger.StatusWrong.selector, c.id, Status.Summoned, Status.Posted
        );
        _expect(wrong);
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
        pass(1 days);
        _expect(wrong);
        network.refund(c.posting);
    }

    /// @notice Parties are numbered by the seal: before it a conviction has nobody to name.
    function test_aSummonedJob_isNotConvicted() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        bytes memory wrong = abi.encodeWithSelector(
            ILedger.StatusWrong.selector, c.id, Status.Summoned, Status.Sealed
        );
        _expect(wrong);
        network.convict(c.posting, c.sealing, c.claiming, 0, VerdictLib.LENGTH, challenger);
        _expect(wrong);
        network.convict(c.posting, c.sealing, c.claiming, 255, VerdictLib.LENGTH, challenger);
    }

    function test_aPostedJob_isNeitherAnsweredReplacedSealedNorDismissedAsSummoned() public {
        Case memory c = _posted(1);
        bytes memory wrong = abi.encodeWithSelector(
            ILedger.StatusWrong.selector, c.id, Status.Posted, Status.Summoned
        );
        _expect(wrong);
        network.answer(c.id, 0, c.parties[0].inner, "");
        _expect(wrong);
        network.replace(c.posting, 0);
        _expect(wrong);
        network.sealSummoned(c.posting, c.parties[0].inner, new bytes32[](3), new bytes[](3));
        _expect(wrong);
        network.dismiss(c.posting);
    }

    function test_summon_revertsForAnyoneButTheScheduler() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        address stranger = person("stranger");
        _expect(abi.encodeWithSelector(ILedger.NotOperator.selector, stranger));
        _summonAs(c, given, 0, stranger);
    }

    function test_summon_revertsForAnotherSecretOrInner() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        ModelSpec memory spec = _spec();
        Inner memory inner = c.parties[0].inner;
        vm.prank(scheduler);
        _expect(abi.encodeWithSelector(ILedger.DrawCommitMismatch.selector));
        network.summon(
            c.posting,
            OUTPUTS,
            inner,
            0,
            spec,
            given.task,
            given.items,
            given.tokens,
            given.signature
        );
        inner.newTokens += 1;
        vm.prank(scheduler);
        _expect(abi.encodeWithSelector(ILedger.CommitmentMismatch.selector, 0));
        network.summon(
            c.posting,
            SECRET,
            inner,
            0,
            spec,
            given.task,
            given.items,
            given.tokens,
            given.signature
        );
    }

    function test_summon_revertsTwiceAndForNoPlace() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        _expect(abi.encodeWithSelector(ISummons.PlaceUnknown.selector, 3));
        _summonAs(c, given, 3, scheduler);
        _summon(c, given);
        _expect(abi.encodeWithSelector(ISummons.AlreadySummoned.selector, 0));
        _summonAs(c, given, 0, scheduler);
    }

    function test_summon_revertsAfterTheSealDeadlineAndForAnotherPosting() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        c.posting.lock += 1;
        _expect(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        _summonAs(c, given, 0, scheduler);
        c.posting.lock -= 1;
        pass(terms.sealWindow);
        (, uint40 deadline,) = network.jobState(c.id);
        _expect(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        _summonAs(c, given, 0, scheduler);
    }

    function test_summon_revertsWhereTheSchedulerCannotPayTheAnswer() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        (uint96 balance, uint96 locked,,,,) = network.accountOf(scheduler);
        vm.prank(scheduler);
        network.requestStakeWithdrawal(balance - locked);
        _expect(
            abi.encodeWithSelector(
                ILedger.StakeInsufficient.selector, scheduler, 0, terms.answerFee
            )
        );
        _summonAs(c, given, 0, scheduler);
    }

    /// @notice What an honest member could not run, in the time that it is given, nobody is fined for.
    function test_summon_revertsForATaskThatNobodyCouldRun() public {
        Case memory c = _posted(2);
        Given memory given;
        (given = _task(c, 0, 2)).task.taskId = HashLib.taskId(SECRET, c.id, 2);
        _refuse(c, given, "taskId");
        (given = _task(c, 0, 2)).task.worker = workers[0];
        _refuse(c, given, "worker");
        (given = _task(c, 0, 2)).task.modelId = ModelId.wrap(OUTPUTS);
        _refuse(c, given, "modelId");
        _refuse(c, _task(c, 0, 1), "items");
        (given = _task(c, 0, 2)).items[1].sampling.temperature = 2_000_001;
        _refuse(c, given, "temperature");
        (given = _task(c, 0, 2)).items[1].sampling.topP = 0;
        _refuse(c, given, "topP");
        (given = _task(c, 0, 2)).items[1].sampling.topP = 1_000_001;
        _refuse(c, given, "topP");
        (given = _task(c, 0, 2)).items[1].sampling.minP = 1_000_001;
        _refuse(c, given, "minP");
        (given = _task(c, 0, 2)).items[1].maxNewTokens = 0;
        _refuse(c, given, "maxNewTokens");
        (given = _task(c, 0, 2)).items[1].length = 0;
        _refuse(c, given, "length");
        (given = _task(c, 0, 2)).items[1].length = 11;
        _refuse(c, given, "tokens");
        _refuse(c, _taskOf(c, 0, 2, 4096), "context");
        (given = _task(c, 0, 2)).tokens[1][2] = 0x02; // 512 and more
        _refuse(c, given, "vocabulary");
    }

    function test_summon_revertsForTokensThatTheTaskDoesNotName() public {
        Case memory c = _posted(2);
        Given memory given = _task(c, 0, 2);
        given.tokens[0][3] ^= 0x01;
        _refuseUnsigned(c, given, "tokensRoot");
        given = _task(c, 0, 2);
        given.items[0].seed = OUTPUTS;
        _refuseUnsigned(c, given, "items");
        given = _task(c, 0, 2);
        given.tokens = new bytes[](1);
        _refuseUnsigned(c, given, "tokens");
        given = _task(c, 0, 2);
        given.items = new Item[](1);
        _refuseUnsigned(c, given, "items");
    }

    function test_summon_revertsForAnotherSpec() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        ModelSpec memory spec = _spec();
        spec.context = 1 << 20;
        vm.prank(scheduler);
        _expect(abi.encodeWithSelector(ISummons.TaskInvalid.selector, bytes32("spec")));
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
    }

    function test_summon_revertsWithoutTheSchedulersSignatureOfTheTask() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        given.signature = signature(clientKey, _digest(hashes.task(given.task)));
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, scheduler));
        _summonAs(c, given, 0, scheduler);
    }

    function test_summon_revertsWhereTheJobWouldHangTooLong() public {
        Case memory c = _posted(1);
        uint256 latest = c.posting.postedAt + terms.sealWindow + 4 * uint256(terms.openingWindow);
        _summon(c, _task(c, 0, 1));
        pass(2 hours);
        _summon(c, _task(c, 1, 1));
        pass(90 minutes);
        _summon(c, _task(c, 2, 1));
        (, uint40 deadline,) = network.jobState(c.id);
        assertLe(deadline, latest + terms.sealWindow);
        pass(terms.openingWindow + 2);
        network.replace(c.posting, 2);
        Given memory given = _task(c, 2, 1);
        uint256 last = vm.getBlockTimestamp() + 1 + terms.openingWindow;
        _expect(abi.encodeWithSelector(ISummons.SummonsTooLate.selector, last, latest));
        _summonAs(c, given, 2, scheduler);
    }

    function test_answer_revertsUnlessItIsTheMembersWordToTheSummonedTask() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        _summon(c, given);
        Made memory made = _made(given, 1, keys[given.task.worker]);
        _expect(abi.encodeWithSelector(ISummons.NotSummoned.selector, 1));
        network.answer(c.id, 1, made.inner, made.signature);
        _expect(abi.encodeWithSelector(ISummons.PlaceUnknown.selector, 3));
        network.answer(c.id, 3, made.inner, made.signature);
        Inner memory other = c.parties[0].inner;
        _expect(abi.encodeWithSelector(ILedger.CommitmentMismatch.selector, 1));
        network.answer(c.id, 0, other, made.signature);
        Made memory forged = _made(given, 1, keys[workers[0]]);
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, given.task.worker));
        network.answer(c.id, 0, forged.inner, forged.signature);
        network.answer(c.id, 0, made.inner, made.signature);
        _expect(abi.encodeWithSelector(ISummons.AlreadyAnswered.selector, 0));
        network.answer(c.id, 0, made.inner, made.signature);
    }

    function test_answer_revertsAfterTheSealDeadline() public {
        Case memory c = _posted(1);
        Given memory given = _task(c, 0, 1);
        _summon(c, given);
        Made memory made = _made(given, 1, keys[given.task.worker]);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline);
        _expect(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.answer(c.id, 0, made.inner, made.signature);
        _expect(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.replace(c.posting, 0);
        _expect(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.sealSummoned(c.posting, c.parties[0].inner, new bytes32[](3), new bytes[](3));
    }

    function test_replace_revertsInTimeUnasked_andForAnotherPosting() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        (,,,, uint40 answerBy,,) = network.placeOf(c.id, 0);
        vm.warp(answerBy - 1);
        _expect(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, answerBy));
        network.replace(c.posting, 0);
        vm.warp(answerBy);
        _expect(abi.encodeWithSelector(ISummons.NotSummoned.selector, 1));
        network.replace(c.posting, 1);
        c.posting.postedAt += 1;
        _expect(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.replace(c.posting, 0);
    }

    function test_replace_revertsWhereNobodyIsLeft() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        _summon(c, _task(c, 1, 1));
        pass(terms.openingWindow + 2);
        network.replace(c.posting, 0); // the last of five owners
        _expect(abi.encodeWithSelector(ILedger.DrawExhausted.selector, 4, 5));
        network.replace(c.posting, 1);
    }

    function test_replace_revertsTheNinthTime() public {
        for (uint256 i = 5; i < 16; ++i) {
            (address worker, uint256 key) = account(string.concat("worker", vm.toString(i)));
            keys[worker] = key;
            _stake(worker, STAKE);
            vm.prank(worker);
            network.join(modelId, PRICE);
        }
        pass(12);
        Case memory c = _posted(1);
        uint256 replaced = 0;
        for (uint256 rounds = 0; rounds < 3; ++rounds) {
            for (uint256 i = 0; i < 3; ++i) {
                _summon(c, _task(c, i, 1));
            }
            pass(terms.openingWindow + 2);
            for (uint256 i = 0; i < 3 && replaced < 8; ++i) {
                network.replace(c.posting, i);
                assertEq(network.taskNumberOf(c.id, i + 1), 3 + ++replaced);
            }
        }
        _expect(abi.encodeWithSelector(ISummons.TooManyReplaced.selector, 8));
        network.replace(c.posting, 2);
    }

    function test_sealSummoned_revertsForWhatSealWouldRefuse() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        _fill(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _signedPlaces(c);
        Inner memory inner = c.parties[0].inner;
        _expect(abi.encodeWithSelector(ILedger.CommitteeSizeWrong.selector, 2, 3));
        network.sealSummoned(c.posting, inner, new bytes32[](2), signatures);
        _expect(abi.encodeWithSelector(ILedger.CommitteeSizeWrong.selector, 4, 3));
        network.sealSummoned(c.posting, inner, inners, new bytes[](4));
        inner.items += 1;
        _expect(abi.encodeWithSelector(ILedger.CommitmentMismatch.selector, 0));
        network.sealSummoned(c.posting, inner, inners, signatures);
        inner.items -= 1;
        (inners[0], inners[1]) = (inners[1], inners[0]);
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, _placeOwner(c, 0)));
        network.sealSummoned(c.posting, inner, inners, signatures);
        c.posting.seat += 1;
        _expect(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.sealSummoned(c.posting, inner, inners, signatures);
    }

    /// @notice The replaced member's own commitment is worth nothing for the one that took its place.
    function test_sealSummoned_revertsForTheCommitmentOfWhoWasReplaced() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        _fill(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _signedPlaces(c);
        pass(terms.openingWindow + 2);
        network.replace(c.posting, 0);
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, _placeOwner(c, 0)));
        network.sealSummoned(c.posting, c.parties[0].inner, inners, signatures);
    }

    function test_dismiss_revertsInTime_andForAnotherPosting() public {
        Case memory c = _posted(1);
        _summon(c, _task(c, 0, 1));
        (, uint40 deadline,) = network.jobState(c.id);
        _expect(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, deadline));
        network.dismiss(c.posting);
        vm.warp(deadline);
        c.posting.bond += 1;
        _expect(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.dismiss(c.posting);
    }

    function test_places_ofAJobThatNobodyWasSummonedFor() public {
        Case memory c = _posted(1);
        (uint256 size,) = network.panelOf(c.id);
        assertEq(size, 0);
        assertEq(network.taskNumberOf(c.id, 2), 2);
        _expect(abi.encodeWithSelector(ISummons.PlaceUnknown.selector, 0));
        network.placeOf(c.id, 0);
    }

    // ── Over whatever comes ─────────────────────────────────────────────────────────────────────

    /// @notice Whoever is summoned, answers, is late or is replaced: the money adds up, and nothing stays locked.
    function test_fuzz_summonedJobs_payOutWhatTheyHold(uint256 deeds, bool sealIt) public {
        Case memory c = _posted(1);
        for (uint256 i = 0; i < 3; ++i) {
            _act(c, i, deeds >> (4 * i));
        }
        if (sealIt && uint8(_status(c)) == uint8(Status.Summoned)) {
            _sealSummoned(c);
            _claim(c, Outcome(1 + (deeds >> 20) % 4), _reason(1 + (deeds >> 20) % 4));
            _finalize(c);
        } else {
            pass(terms.openingWindow + 2 * terms.sealWindow);
            if (uint8(_status(c)) == uint8(Status.Posted)) network.refund(c.posting);
            else network.dismiss(c.posting);
        }
        uint256 sum = _deposited() + _balance(scheduler) + _balance(claimer) + _balance(challenger)
            + _balance(address(this));
        uint256 locked = _locked(scheduler);
        for (uint256 i = 0; i < 5; ++i) {
            sum += _balance(workers[i]);
            locked += _locked(workers[i]);
        }
        assertEq(sum, token.balanceOf(address(network)), "all that is held is somebody's");
        assertEq(locked, 0, "unlocked");
    }

    function _act(Case memory c, uint256 index, uint256 deed) private {
        if (deed & 1 == 0) return;
        Given memory given = _task(c, index, 1);
        _summon(c, given);
        if (deed & 2 != 0) return;
        if (deed & 4 != 0) {
            _answer(c, index, given);
        } else if (deed & 8 != 0) {
            (, uint256 replaced) = network.panelOf(c.id);
            if (replaced == 1) return; // five owners
            pass(terms.openingWindow + 2);
            network.replace(c.posting, index);
        }
    }

    function _reason(uint256 outcome) private pure returns (uint8) {
        if (outcome == 1) return 0;
        return outcome == 4 ? VerdictLib.DIVIDED : 1;
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    function _posted(uint16 requests) private returns (Case memory c) {
        c = _order(requests);
        _post(c);
        pass(12);
    }

    function _ownerAt(Case memory c, uint256 index) private view returns (address) {
        (uint256 size,) = network.panelOf(c.id);
        if (size != 0) return _placeOwner(c, index);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        return owners[index];
    }

    function _placeOwner(Case memory c, uint256 index) private view returns (address owner) {
        (owner,,,,,,) = network.placeOf(c.id, index);
    }

    function _indexOf(Case memory c, address owner) private view returns (uint256 index) {
        while (index < 3 && _ownerAt(c, index) != owner) ++index;
    }

    /// @dev The task of the member at a place, of items of 10 tokens.
    function _task(Case memory c, uint256 index, uint256 items)
        private
        view
        returns (Given memory)
    {
        return _taskOf(c, index, items, 10);
    }

    function _taskOf(Case memory c, uint256 index, uint256 items, uint32 length)
        private
        view
        returns (Given memory)
    {
        uint256 number = network.taskNumberOf(c.id, index + 1);
        bytes32 taskId = HashLib.taskId(SECRET, c.id, number);
        uint256 deadline = vm.getBlockTimestamp() + 1 days;
        return _given(taskId, _ownerAt(c, index), items, length, 1, deadline);
    }

    function _summon(Case memory c, Given memory given) private {
        uint256 index = _indexOf(c, given.task.worker);
        _summonAs(c, given, index, scheduler);
    }

    function _summonAs(Case memory c, Given memory given, uint256 index, address sender) private {
        vm.prank(sender);
        network.summon(
            c.posting,
            SECRET,
            c.parties[0].inner,
            index,
            _spec(),
            given.task,
            given.items,
            given.tokens,
            given.signature
        );
    }

    function _refuse(Case memory c, Given memory given, bytes32 field) private {
        _sign(given);
        _refuseUnsigned(c, given, field);
    }

    function _refuseUnsigned(Case memory c, Given memory given, bytes32 field) private {
        _expect(abi.encodeWithSelector(ISummons.TaskInvalid.selector, field));
        _summonAs(c, given, 0, scheduler);
    }

    function _answer(Case memory c, uint256 index, Given memory given)
        private
        returns (Made memory made)
    {
        made = _made(given, 1, keys[given.task.worker]);
        network.answer(c.id, index, made.inner, made.signature);
    }

    /// @dev Puts the places' owners behind the case.
    function _fill(Case memory c) private view {
        for (uint256 i = 0; i < 3; ++i) {
            c.parties[i + 1] = _party(_placeOwner(c, i), 1, i + 1);
        }
    }

    function _signedPlaces(Case memory c)
        private
        view
        returns (bytes32[] memory inners, bytes[] memory signatures)
    {
        inners = new bytes32[](3);
        signatures = new bytes[](3);
        for (uint256 i = 0; i < 3; ++i) {
            inners[i] = keccak256(abi.encode(c.parties[i + 1].inner));
            uint256 number = network.taskNumberOf(c.id, i + 1);
            bytes32 task = HashLib.taskId(SECRET, c.id, number);
            signatures[i] = _signed(c.parties[i + 1], HashLib.hashCommitment(task, inners[i]));
        }
    }

    function _sealSummoned(Case memory c) private {
        _fill(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _signedPlaces(c);
        vm.recordLogs();
        network.sealSummoned(c.posting, c.parties[0].inner, inners, signatures);
        c.sealing = abi.decode(_logged(ILedger.Sealed.selector), (Sealing));
    }

    function _expect(bytes memory failure) private {
        vm.expectRevert(failure);
    }
}
