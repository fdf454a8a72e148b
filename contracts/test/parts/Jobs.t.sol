// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Network} from "../Network.sol";

/// @notice A contract wallet: whatever its owner signed.
contract Wallet {
    address private immutable OWNER;

    constructor(address owner) {
        OWNER = owner;
    }

    function isValidSignature(bytes32 digest, bytes calldata signature)
        external
        view
        returns (bytes4)
    {
        (bytes32 r, bytes32 s, uint8 v) = abi.decode(signature, (bytes32, bytes32, uint8));
        return ecrecover(digest, v, r, s) == OWNER ? bytes4(0x1626ba7e) : bytes4(0);
    }
}

contract JobsTest is Network {
    // ── The happy path ──────────────────────────────────────────────────────────────────────────

    function test_accept_paysByBasisPoints() public {
        uint256 before = _deposited();
        Case memory c = _sealed(1);
        assertEq(c.sealing.fee, 0.11 ether, "11 tokens");
        _claim(c, Outcome.Accept, 0);
        pass(terms.disputeWindow);
        address stranger = person("stranger");
        vm.prank(stranger);
        network.finalize(c.posting, c.sealing, c.claiming);
        uint256 each = (0.11 ether * 2000) / 10_000 / uint256(3);
        uint256 share = 0.11 ether * 7000 / uint256(10_000);
        uint256 rest = 0.11 ether - share - 3 * each;
        assertEq(_balance(workers[0]), STAKE + share, "inferencer");
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(_balance(c.parties[i + 1].owner), STAKE + each, "member");
        }
        // The scheduler's share is 0.011: both callers take at most half of it each.
        assertEq(_balance(claimer), STAKE + rest / 2, "claimer");
        assertEq(_balance(stranger), rest / 2, "who finalizes");
        assertEq(_balance(scheduler), STAKE + rest - 2 * (rest / 2), "scheduler");
        assertEq(_deposited(), before - 0.11 ether, "client");
        assertEq(uint8(_status(c)), uint8(Status.Final));
        _assertUnlocked(c);
    }

    function test_accept_leavesThePartOfTheUnpaidWithTheClient() public {
        uint256 before = _deposited();
        Case memory c = _sealed(1);
        _claimWith(c, Outcome.Accept, 0, 5, new bytes[](0));
        _finalize(c);
        uint256 each = (0.11 ether * 2000) / 10_000 / uint256(3);
        assertEq(_balance(c.parties[2].owner), STAKE, "not paid");
        assertEq(_balance(c.parties[3].owner), STAKE + each, "paid");
        assertEq(_deposited(), before - 0.11 ether + each, "client");
    }

    function test_refundTier_paysTheCommitteeFromTheLock() public {
        uint256 before = _deposited();
        Case memory c = _sealed(1);
        _claim(c, Outcome.Refund, 1);
        _finalize(c);
        uint256 each = (0.11 ether * 2000) / 10_000 / uint256(3);
        assertEq(_balance(workers[0]), STAKE - 3 * each, "inferencer");
        assertEq(_balance(c.parties[1].owner), STAKE + each, "member");
        assertEq(_deposited(), before, "all of it back");
        assertEq(_balance(scheduler), STAKE);
        _assertUnlocked(c);
    }

    function test_slashTier_paysFinderAtMostTheFeeAndBurnsTheRest() public {
        uint256 before = _deposited();
        Case memory c = _sealed(1);
        _claim(c, Outcome.Slash, 1);
        _finalize(c);
        uint256 each = (0.11 ether * 2000) / 10_000 / uint256(3);
        assertEq(_balance(workers[0]), STAKE - LOCK, "inferencer");
        assertEq(_balance(claimer), STAKE + 0.11 ether, "finder");
        assertEq(_deposited(), before, "client");
        uint256 burnt = token.balanceOf(0x000000000000000000000000000000000000dEaD);
        assertEq(burnt, LOCK - 3 * each - 0.11 ether, "burnt");
        _assertUnlocked(c);
    }

    function test_inconclusive_paysTheCommitteeFromEscrow() public {
        uint256 before = _deposited();
        Case memory c = _sealed(1);
        _claim(c, Outcome.Inconclusive, VerdictLib.DIVIDED);
        _finalize(c);
        uint256 each = (0.11 ether * 2000) / 10_000 / uint256(3);
        assertEq(_balance(workers[0]), STAKE);
        assertEq(_deposited(), before - 3 * each);
        _assertUnlocked(c);
    }

    /// @notice Where the scheduler's share covers both callers' fees, each has its own, and no more.
    function test_accept_paysCallersAFixedFee() public {
        Case memory c = _order(1);
        c.parties[0].inner.newTokens = 19;
        _post(c);
        _seal(c);
        assertEq(c.sealing.fee, 0.25 ether, "25 tokens");
        _claim(c, Outcome.Accept, 0);
        pass(terms.disputeWindow);
        vm.prank(challenger);
        network.finalize(c.posting, c.sealing, c.claiming);
        uint256 each = (0.25 ether * 2000) / 10_000 / uint256(3);
        uint256 share = 0.25 ether - 0.25 ether * 7000 / uint256(10_000) - 3 * each;
        assertEq(_balance(claimer), STAKE + terms.callerFee, "claimer");
        assertEq(_balance(challenger), STAKE + terms.callerFee, "who finalizes");
        assertEq(_balance(scheduler), STAKE + share - 2 * terms.callerFee, "scheduler");
    }

    function test_fee_isAtMostMaxFee() public {
        Case memory c = _order(1);
        c.parties[0].inner.newTokens = 1_000_000;
        _post(c);
        _seal(c);
        assertEq(c.sealing.fee, MAX_FEE);
    }

    function test_fuzz_accept_losesNothing(uint64 tokens, uint8 paid) public {
        Case memory c = _order(1);
        c.parties[0].inner.newTokens = uint64(bound(tokens, 0, 2000));
        uint256 held = token.balanceOf(address(network));
        _post(c);
        _seal(c);
        _claimWith(c, Outcome.Accept, 0, paid & 7, new bytes[](0));
        _finalize(c);
        assertEq(token.balanceOf(address(network)), held, "nothing leaves");
        assertEq(_sum(c), held, "and nothing is lost");
    }

    // ── Post ────────────────────────────────────────────────────────────────────────────────────

    function test_post_locksFeeExposureAndBond() public {
        Case memory c = _order(1);
        _post(c);
        assertEq(_deposited(), 990 ether);
        assertEq(_locked(workers[0]), LOCK, "exposure");
        assertEq(_locked(scheduler), uint256(LOCK + MAX_FEE) * 5 / 4, "bond");
        (Status status, uint40 deadline, bytes32 record) = network.jobState(c.id);
        assertEq(uint8(status), uint8(Status.Posted));
        assertEq(deadline, vm.getBlockTimestamp() + terms.sealWindow);
        assertEq(record, keccak256(abi.encode(c.posting)));
        assertTrue(network.nonceUsed(client, scheduler, c.job.nonce));
    }

    function test_post_revertsForAStranger() public {
        Case memory c = _order(1);
        bytes32 commitment = _commitment(c, 0);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        _expect(abi.encodeWithSelector(ILedger.NotOperator.selector, client));
        _sendPost(c, 0, commitment, LOCK, signed, client);
    }

    function test_post_revertsForAnotherQuote() public {
        Case memory c = _order(1);
        c.quote.unitPrice += 1;
        _expectPost(c, abi.encodeWithSelector(ILedger.QuoteMismatch.selector));
    }

    function test_post_revertsAfterExpiry() public {
        Case memory c = _order(1);
        pass(1200);
        _expectPost(c, abi.encodeWithSelector(ILedger.QuoteExpired.selector, c.quote.expiry));
    }

    function test_post_takesTheLastDeadlineAndTheMostRequests() public {
        Case memory c = _order(4096);
        c.job.deadline = uint40(vm.getBlockTimestamp() + terms.jobWindow);
        c.id = network.jobIdOf(c.job);
        _post(c);
        assertEq(uint8(_status(c)), uint8(Status.Posted));
    }

    function test_post_worksInTheLastSecondOfQuoteAndJob() public {
        Case memory c = _order(1);
        assertEq(c.quote.expiry, c.job.deadline);
        vm.warp(c.quote.expiry);
        _post(c);
        assertEq(uint8(_status(c)), uint8(Status.Posted));
    }

    function test_post_revertsAfterDeadline() public {
        Case memory c = _order(1);
        c.job.deadline = uint40(vm.getBlockTimestamp() - 1);
        _expectPost(c, abi.encodeWithSelector(ILedger.DeadlinePassed.selector, c.job.deadline));
    }

    function test_post_revertsWithADeadlineTooFar() public {
        Case memory c = _order(1);
        c.job.deadline = uint40(vm.getBlockTimestamp() + terms.jobWindow + 1);
        _expectPost(
            c,
            abi.encodeWithSelector(
                ILedger.DeadlineTooFar.selector, c.job.deadline, c.job.deadline - 1
            )
        );
    }

    function test_post_revertsWithoutOrWithTooManyRequests() public {
        Case memory c = _order(0);
        _expectPost(c, abi.encodeWithSelector(ILedger.RequestsOutOfBounds.selector, 0));
        c = _order(4097);
        _expectPost(c, abi.encodeWithSelector(ILedger.RequestsOutOfBounds.selector, 4097));
    }

    function test_post_revertsForAnUnknownModel() public {
        Case memory c = _order(1);
        c.quote.modelId = ModelId.wrap("nothing");
        c.job.quote = _quoteHash(c.quote);
        _expectPost(c, abi.encodeWithSelector(ILedger.ModelUnknown.selector, c.quote.modelId));
    }

    function test_post_revertsForAnInactiveSeat() public {
        Case memory c = _order(1);
        c.id = network.jobIdOf(c.job);
        bytes32 commitment = _commitment(c, 0);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        _expect(abi.encodeWithSelector(ILedger.SeatNotActive.selector, modelId, 9));
        _sendPost(c, 9, commitment, LOCK, signed, scheduler);
        vm.prank(workers[0]);
        network.leave(modelId, 0);
        pass(12);
        _expect(abi.encodeWithSelector(ILedger.SeatNotActive.selector, modelId, 0));
        _sendPost(c, 0, commitment, LOCK, signed, scheduler);
    }

    function test_post_revertsInTheBlockOfJoining() public {
        vm.prank(workers[0]);
        uint32 seat = network.join(modelId, PRICE);
        Case memory c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        _expect(abi.encodeWithSelector(ILedger.SeatNotActive.selector, modelId, seat));
        _sendPost(c, seat, commitment, LOCK, signed, scheduler);
    }

    function test_post_revertsForADearSeat() public {
        Case memory c = _order(1);
        c.quote.unitPrice = PRICE - 1;
        c.job.quote = _quoteHash(c.quote);
        _expectPost(c, abi.encodeWithSelector(ILedger.SeatTooExpensive.selector, PRICE, PRICE - 1));
    }

    function test_post_revertsWithTooFewOwners() public {
        for (uint32 i = 3; i < 5; ++i) {
            vm.prank(workers[i]);
            network.leave(modelId, i);
        }
        Case memory c = _order(1);
        _expectPost(c, abi.encodeWithSelector(ILedger.TooFewOwners.selector, 3, 4));
    }

    function test_post_revertsForAUsedNonce() public {
        Case memory c = _order(1);
        _post(c);
        _expectPost(c, abi.encodeWithSelector(ILedger.NonceUsed.selector, client, c.job.nonce));
    }

    function test_post_countsNoncesForEachScheduler() public {
        // A job with another scheduler must not make this one, which is served already, void.
        Case memory other = _order(1);
        _post(other);
        token.mint(client, MAX_FEE);
        vm.prank(client);
        token.approve(address(network), MAX_FEE);
        vm.prank(client);
        network.deposit(challenger, MAX_FEE);
        Case memory c = _order(1);
        c.quote.scheduler = challenger;
        c.job.quote = _quoteHash(c.quote);
        c.job.nonce = other.job.nonce;
        c.id = network.jobIdOf(c.job);
        assertFalse(network.nonceUsed(client, challenger, c.job.nonce));
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        _postWith(c, 0, _commitment(c, 0), LOCK, signed, challenger);
        assertTrue(network.nonceUsed(client, challenger, c.job.nonce));
    }

    function test_post_revertsForAForgedClientSignature() public {
        Case memory c = _order(1);
        bytes32 commitment = _commitment(c, 0);
        bytes memory signed = signature(workerKeys[1], JobId.unwrap(c.id));
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, client));
        _sendPost(c, 0, commitment, LOCK, signed, scheduler);
    }

    function test_post_revertsForAMalleatedSignature() public {
        Case memory c = _order(1);
        bytes32 commitment = _commitment(c, 0);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(clientKey, JobId.unwrap(c.id));
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        bytes memory signed =
            abi.encodePacked(r, bytes32(order - uint256(s)), v == 27 ? uint8(28) : uint8(27));
        _expect(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, client));
        _sendPost(c, 0, commitment, LOCK, signed, scheduler);
    }

    function test_post_revertsForAForgedCommitment() public {
        Case memory c = _order(1);
        c.parties[0].key = workerKeys[1];
        _expectPost(c, abi.encodeWithSelector(ILedger.SignatureInvalid.selector, workers[0]));
    }

    function test_post_takesAContractWalletsSignature() public {
        address wallet = address(new Wallet(client));
        token.mint(wallet, 100 ether);
        vm.startPrank(wallet);
        token.approve(address(network), 100 ether);
        network.deposit(scheduler, 100 ether);
        vm.stopPrank();
        Case memory c = _order(1);
        c.job.client = wallet;
        c.id = network.jobIdOf(c.job);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(clientKey, JobId.unwrap(c.id));
        _postWith(c, 0, _commitment(c, 0), LOCK, abi.encode(r, s, v), scheduler);
        assertEq(uint8(_status(c)), uint8(Status.Posted));
    }

    function test_post_revertsForAMissingDeposit() public {
        Case memory c = _order(1);
        c.job.maxFee = 1001 ether;
        c.id = network.jobIdOf(c.job);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        _expect(
            abi.encodeWithSelector(ILedger.DepositInsufficient.selector, 1000 ether, 1001 ether)
        );
        _sendPost(c, 0, commitment, 3000 ether, signed, scheduler);
    }

    /// @notice The exposure lock: less than κ·maxFee at stake would make a cheat pay.
    function test_exposureLock_revertsBelowKappa() public {
        Case memory c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        _expect(abi.encodeWithSelector(ILedger.LockTooSmall.selector, LOCK - 1, LOCK));
        _sendPost(c, 0, commitment, LOCK - 1, signed, scheduler);
    }

    /// @notice The exposure lock: one stake must not stand behind unlimited jobs.
    function test_exposureLock_isNeverMoreThanWhatIsFree() public {
        _stake(scheduler, 10_000 ether);
        uint96 lock = 900 ether;
        Case memory c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        _postWith(c, 0, _commitment(c, 0), lock, signed, scheduler);
        c = _order(1);
        signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        // 30 % of the seat's 100 are reserved for verification.
        _expect(
            abi.encodeWithSelector(
                ILedger.StakeInsufficient.selector, workers[0], 70 ether, 71 ether
            )
        );
        _sendPost(c, 0, commitment, 71 ether, signed, scheduler);
        _postWith(c, 0, commitment, 70 ether, signed, scheduler);
        assertEq(_locked(workers[0]), 970 ether);
    }

    function test_exposureLock_leavesAPendingWithdrawalAlone() public {
        vm.prank(workers[0]);
        network.requestStakeWithdrawal(900 ether);
        Case memory c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        _expect(
            abi.encodeWithSelector(
                ILedger.StakeInsufficient.selector, workers[0], 70 ether, 71 ether
            )
        );
        _sendPost(c, 0, commitment, 71 ether, signed, scheduler);
    }

    // ── Seal ────────────────────────────────────────────────────────────────────────────────────

    function test_seal_writesTheCommittee() public {
        Case memory c = _sealed(1);
        assertEq(c.sealing.committee.length, 3);
        for (uint256 i = 0; i < 3; ++i) {
            Member memory member = c.sealing.committee[i];
            assertEq(member.owner, workers[member.seat], "seat");
            assertNotEq(member.owner, workers[0], "the inferencer's owner");
            assertEq(member.lock, LOCK);
            assertEq(_locked(member.owner), LOCK);
            for (uint256 j = 0; j < i; ++j) {
                assertNotEq(c.sealing.committee[j].owner, member.owner, "twice");
            }
        }
        (Status status, uint40 deadline, bytes32 record) = network.jobState(c.id);
        assertEq(uint8(status), uint8(Status.Sealed));
        assertEq(deadline, vm.getBlockTimestamp() + terms.claimWindow);
        bytes32 posted = keccak256(abi.encode(c.posting));
        assertEq(record, keccak256(abi.encode(posted, c.sealing)));
    }

    function test_seal_locksWhatAMemberHasLeft() public {
        for (uint256 i = 1; i < 5; ++i) {
            vm.prank(workers[i]);
            network.requestStakeWithdrawal(STAKE - SEAT);
        }
        uint256 partly = 0;
        for (uint256 n = 0; n < 8; ++n) {
            Case memory c = _order(1);
            _post(c);
            _commit(c);
            uint256[3] memory left;
            for (uint256 i = 0; i < 3; ++i) {
                left[i] = SEAT - _locked(c.parties[i + 1].owner);
            }
            _sealWith(c, scheduler);
            for (uint256 i = 0; i < 3; ++i) {
                uint256 expected = left[i] < LOCK ? left[i] : LOCK;
                assertEq(c.sealing.committee[i].lock, expected);
                if (expected < LOCK) ++partly;
            }
        }
        assertGt(partly, 0, "eight jobs take more than a seat");
    }

    /// @notice The deadline guard: after `sealBy` the job can only be refunded.
    function test_deadlineGuard_sealRevertsAfterSealBy() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.setBlockhash(c.posting.postedBlock, blockhash(c.posting.postedBlock));
        vm.warp(deadline);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        vm.prank(scheduler);
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
        vm.warp(deadline - 1);
        vm.prank(scheduler);
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
    }

    function test_seal_revertsForAnotherSecret() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        vm.expectRevert(ILedger.DrawCommitMismatch.selector);
        network.seal(c.posting, keccak256("other"), c.parties[0].inner, inners, signatures);
    }

    function test_seal_revertsForAnotherCommitment() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        c.parties[0].inner.newTokens += 1;
        vm.expectRevert(abi.encodeWithSelector(ILedger.CommitmentMismatch.selector, 0));
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
    }

    function test_seal_revertsForACommitmentOfOtherItems() public {
        Case memory c = _order(2);
        c.parties[0].inner.items = 1;
        _post(c);
        _commit(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        vm.expectRevert(abi.encodeWithSelector(ILedger.CommitmentMismatch.selector, 0));
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
    }

    function test_seal_revertsForAStrangersSignature() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        signatures[1] = signatures[0];
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.SignatureInvalid.selector, c.parties[2].owner)
        );
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
    }

    function test_seal_revertsForAnotherCommitteeSize() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        vm.expectRevert(abi.encodeWithSelector(ILedger.CommitteeSizeWrong.selector, 2, 3));
        network.seal(c.posting, SECRET, c.parties[0].inner, new bytes32[](2), signatures);
        vm.expectRevert(abi.encodeWithSelector(ILedger.CommitteeSizeWrong.selector, 4, 3));
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, new bytes[](4));
    }

    function test_seal_revertsInPostsOwnBlock() public {
        Case memory c = _order(1);
        _post(c);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.BeaconUnavailable.selector, c.posting.postedBlock)
        );
        network.seal(c.posting, SECRET, c.parties[0].inner, new bytes32[](3), new bytes[](3));
    }

    function test_seal_worksWithAKeptBeacon() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        vm.expectEmit(address(network));
        emit ILedger.BeaconKept(c.posting.postedBlock, blockhash(c.posting.postedBlock));
        network.keep(c.posting.postedBlock);
        vm.roll(vm.getBlockNumber() + 9000);
        _sealWith(c, scheduler);
        assertEq(uint8(_status(c)), uint8(Status.Sealed));
    }

    function test_keep_revertsForALostBlock() public {
        uint256 number = vm.getBlockNumber();
        vm.expectRevert(abi.encodeWithSelector(ILedger.BeaconUnavailable.selector, number));
        network.keep(number);
        vm.roll(number + 9000);
        vm.expectRevert(abi.encodeWithSelector(ILedger.BeaconUnavailable.selector, number));
        network.keep(number);
    }

    function test_seal_revertsForAnotherPosting() public {
        Case memory c = _order(1);
        _post(c);
        _commit(c);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        c.posting.lock -= 1;
        vm.expectRevert(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
    }

    function test_seal_revertsTwice() public {
        Case memory c = _sealed(1);
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StatusWrong.selector, c.id, Status.Sealed, Status.Posted)
        );
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
    }

    function test_seal_drawsAWorkerThatLeftAfterPost() public {
        Case memory c = _order(1);
        _post(c);
        pass(12);
        for (uint32 i = 1; i < 5; ++i) {
            vm.prank(workers[i]);
            network.leave(modelId, i);
        }
        _seal(c);
        assertEq(c.sealing.committee.length, 3);
    }

    // ── Claim and finalize ──────────────────────────────────────────────────────────────────────

    function test_claim_revertsForImpossiblePairs() public {
        Case memory c = _sealed(1);
        pass(12);
        _expectClaim(c, Outcome.None, 0, 7);
        _expectClaim(c, Outcome.Accept, 1, 7);
        _expectClaim(c, Outcome.Slash, 0, 7);
        _expectClaim(c, Outcome.Slash, 8, 7);
        _expectClaim(c, Outcome.Refund, 2, 7);
        _expectClaim(c, Outcome.Inconclusive, 0, 7);
        _expectClaim(c, Outcome.Inconclusive, VerdictLib.BEACON_LOST, 7);
        _expectClaim(c, Outcome.Accept, 0, 8);
    }

    function test_claim_needsAttestationsForWhatTheChainCannotRecompute() public {
        Case memory c = _sealed(1);
        pass(12);
        bytes[] memory one = _attestations(c, Outcome.Refund, 5, 2);
        vm.expectRevert(abi.encodeWithSelector(ILedger.AttestationsInsufficient.selector, 1, 2));
        network.claim(c.posting, c.sealing, Outcome.Refund, 5, 7, BUNDLE, one);
        vm.expectRevert(abi.encodeWithSelector(ILedger.CommitteeSizeWrong.selector, 0, 3));
        network.claim(c.posting, c.sealing, Outcome.Refund, 5, 7, BUNDLE, new bytes[](0));
        bytes[] memory other = _attestations(c, Outcome.Slash, 5, 7);
        vm.expectRevert(abi.encodeWithSelector(ILedger.AttestationsInsufficient.selector, 0, 2));
        network.claim(c.posting, c.sealing, Outcome.Refund, 5, 7, BUNDLE, other);
        _claimWith(c, Outcome.Refund, 5, 7, _attestations(c, Outcome.Refund, 5, 5));
        assertEq(uint8(_status(c)), uint8(Status.Claimed));
    }

    /// @notice The deadline guard: after `claimBy` only a challenge is left.
    function test_deadlineGuard_claimRevertsAfterClaimBy() public {
        Case memory c = _sealed(1);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, BUNDLE, new bytes[](0));
    }

    function test_claim_revertsTwiceAndForAnotherSeal() public {
        Case memory c = _sealed(1);
        pass(12);
        uint96 fee = c.sealing.fee;
        c.sealing.fee = MAX_FEE;
        _expect(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, BUNDLE, new bytes[](0));
        c.sealing.fee = fee;
        _claim(c, Outcome.Accept, 0);
        _expect(
            abi.encodeWithSelector(
                ILedger.StatusWrong.selector, c.id, Status.Claimed, Status.Sealed
            )
        );
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, BUNDLE, new bytes[](0));
    }

    function test_claim_revertsWithoutABond() public {
        Case memory c = _sealed(1);
        pass(12);
        address poor = person("poor");
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StakeInsufficient.selector, poor, 0, terms.claimBond)
        );
        vm.prank(poor);
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, BUNDLE, new bytes[](0));
    }

    /// @notice The deadline guard: nobody is paid before the window has passed.
    function test_deadlineGuard_finalizeRevertsWithinTheWindow() public {
        Case memory c = _sealed(1);
        _claim(c, Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, deadline));
        network.finalize(c.posting, c.sealing, c.claiming);
    }

    function test_finalize_revertsTwice() public {
        Case memory c = _sealed(1);
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StatusWrong.selector, c.id, Status.Final, Status.Claimed)
        );
        network.finalize(c.posting, c.sealing, c.claiming);
    }

    function test_finalize_revertsForAnotherClaim() public {
        Case memory c = _sealed(1);
        _claim(c, Outcome.Accept, 0);
        pass(terms.disputeWindow);
        c.claiming.outcome = Outcome.Slash;
        vm.expectRevert(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.finalize(c.posting, c.sealing, c.claiming);
    }

    // ── Refund ──────────────────────────────────────────────────────────────────────────────────

    function test_refund_paysTheInferencerFromTheBondAndBurnsTheRest() public {
        Case memory c = _order(1);
        _post(c);
        pass(terms.sealWindow);
        vm.expectEmit(address(network));
        emit ILedger.Finalized(c.id, Outcome.Refund, VerdictLib.NOT_SEALED);
        network.refund(c.posting);
        uint256 bond = uint256(LOCK + MAX_FEE) * 5 / 4;
        assertEq(_deposited(), 1000 ether, "client");
        assertEq(_balance(workers[0]), STAKE + 7 ether, "inferencer");
        assertEq(_balance(scheduler), STAKE - bond, "scheduler");
        uint256 burnt = token.balanceOf(0x000000000000000000000000000000000000dEaD);
        assertEq(burnt, bond - 7 ether);
        assertEq(_locked(workers[0]) + _locked(scheduler), 0);
    }

    function test_deadlineGuard_refundRevertsBeforeSealBy() public {
        Case memory c = _order(1);
        _post(c);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, deadline));
        network.refund(c.posting);
    }

    function test_refund_revertsTwice() public {
        Case memory c = _order(1);
        _post(c);
        pass(terms.sealWindow);
        network.refund(c.posting);
        _expect(
            abi.encodeWithSelector(ILedger.StatusWrong.selector, c.id, Status.Final, Status.Posted)
        );
        network.refund(c.posting);
    }

    function test_refund_revertsOnceSealed() public {
        Case memory c = _sealed(1);
        pass(terms.sealWindow);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StatusWrong.selector, c.id, Status.Sealed, Status.Posted)
        );
        network.refund(c.posting);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    function _expect(bytes memory fact) private {
        vm.expectRevert(fact);
    }

    function _expectPost(Case memory c, bytes memory fact) private {
        c.id = network.jobIdOf(c.job);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        vm.expectRevert(fact);
        _sendPost(c, 0, commitment, LOCK, signed, scheduler);
    }

    function _expectClaim(Case memory c, Outcome outcome, uint8 reason, uint8 paid) private {
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        vm.prank(claimer);
        network.claim(c.posting, c.sealing, outcome, reason, paid, BUNDLE, new bytes[](0));
    }

    function _assertUnlocked(Case memory c) private view {
        for (uint256 i = 0; i < 4; ++i) {
            assertEq(_locked(c.parties[i].owner), 0, "party");
        }
        assertEq(_locked(scheduler), 0, "scheduler");
        assertEq(_locked(claimer), 0, "claimer");
    }

    function _sum(Case memory) private view returns (uint256 sum) {
        for (uint256 i = 0; i < 5; ++i) {
            sum += _balance(workers[i]);
        }
        sum += _balance(scheduler) + _balance(claimer) + _balance(challenger) + _deposited();
        sum += _balance(address(this));
    }
}
