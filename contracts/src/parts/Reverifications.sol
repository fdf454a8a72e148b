// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator, Verdict} from "../interfaces/IAdjudicator.sol";
import {IAppeals} from "../interfaces/IAppeals.sol";
import {
    AppealPhase,
    Claiming,
    Content,
    Inner,
    JobId,
    Member,
    ModelId,
    Outcome,
    Posting,
    Sealing,
    Status
} from "../interfaces/Types.sol";
import {ContentLib} from "../libraries/ContentLib.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Panels} from "./Panels.sol";
import {Rulings} from "./Rulings.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice Re-verification, step by step, up to what the new committee's openings say.
/// @dev The round is the adjudicator's, over a pseudo-sealing: the job's own secret, draw and inferencer, so that the
/// same requests are checked, but the new members and the block of their last commitment, so that the positions are
/// fresh. Why not fresh requests: a job that failed in one request of thousands would pass by the luck of another draw.
/// The first committee stands behind the new one as witnesses. Why: by two draws of positions a cheat that shows
/// in some of them only would once pass and once not, and honest members would pay for it; who lied is seen only
/// where all open the same positions. A first member that was handed a false task is honest and has other states all
/// the same: from the contents on it holds the proof (IProver.promptDiffers, taskDiffers), which ends the job at the
/// scheduler's cost and frees everybody, and no lock is taken for states before the time to open is over.
abstract contract Reverifications is IAppeals, Rulings, Panels {
    using JobLib for JobLib.State;

    /// @dev What the new committee says of the job.
    struct Second {
        Verdict verdict;
        bool stands;
        uint8 near;
        uint8 strangers;
    }

    /// @dev Members of a new committee; parties of the adjudicator's round are 0..7 and the witnesses behind them.
    uint256 private constant MOST = 7;
    /// @dev Tokens that a re-verifier can run in a second beside its other work.
    uint256 private constant TOKENS_PER_SECOND = 100;

    // ── The question ────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAppeals
    function reverify(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        Content[] calldata contents
    ) external {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        Status from = job.status == Status.Judged ? Status.Judged : Status.Claimed;
        (, uint256 deadline) = _at(from, posting, sealing, claiming);
        JobLib.requireBefore(deadline);
        // A round that the draw forces comes first: else whoever asks and supplies nothing would end the job without.
        bool forced = from == Status.Claimed && _isForced(posting, sealing);
        require(!forced, RoundForced(jobId));
        _requireOwners(posting.quote.modelId, sealing.committee.length);
        address requester = _operatorOf(msg.sender);
        _lock(requester, REVERIFY_BOND);
        Appeal storage appeal = _appeals[jobId];
        appeal.requester = requester;
        appeal.ofClaim = from == Status.Claimed;
        appeal.phase = AppealPhase.Asked;
        uint40 supplyBy = _from(OPENING_WINDOW);
        job.reverify(supplyBy);
        emit ReverificationAsked(jobId, requester, from, supplyBy);
        _supply(jobId, posting, sealing.secret, sealing.beacon, contents);
    }

    /// @inheritdoc IAppeals
    function supply(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        Content[] calldata contents
    ) external {
        JobId jobId = _before(AppealPhase.Asked, posting, sealing, claiming);
        _supply(jobId, posting, sealing.secret, sealing.beacon, contents);
    }

    function _supply(
        JobId jobId,
        Posting memory posting,
        bytes32 secret,
        bytes32 beacon,
        Content[] calldata contents
    ) private {
        Appeal storage appeal = _appeals[jobId];
        uint16[] memory checked = IAdjudicator(ADJUDICATOR)
            .checkedOf(
                posting.quote.modelId,
                posting.job.requests,
                DrawLib.draw(secret, posting.commitment, beacon)
            );
        uint256 place = appeal.supplied;
        uint256 supplied = place + contents.length;
        require(supplied <= checked.length, ContentsExceeded(supplied, checked.length));
        for (uint256 i = 0; i < contents.length; ++i) {
            // Each of the tokens stood in calldata.
            appeal.tokens += uint64(_check(jobId, posting, secret, checked[place + i], contents[i]));
            emit ContentSupplied(jobId, place + i, contents[i]);
        }
        appeal.supplied = uint8(supplied); // at most 16
        if (supplied == checked.length) _complete(jobId, appeal, posting.quote.modelId);
    }

    /// @dev The job's own text, and one that whoever is drawn can run.
    function _check(
        JobId jobId,
        Posting memory posting,
        bytes32 secret,
        uint256 request,
        Content calldata content
    ) private view returns (uint256 tokens) {
        tokens = ContentLib.check(content, posting, jobId, secret, request);
        Model storage model = _models[posting.quote.modelId];
        ContentLib.requireRunnable(content, request, model.vocabulary, model.context);
    }

    /// @dev From here on the draw is fixed: seats, time and the block whose hash decides.
    function _complete(JobId jobId, Appeal storage appeal, ModelId modelId) private {
        appeal.phase = AppealPhase.Complete;
        appeal.slots = _models[modelId].slots;
        appeal.at = _from(0);
        appeal.blockNumber = uint40(block.number);
        uint40 conveneBy = _from(OPENING_WINDOW);
        _jobs[jobId].reverify(conveneBy);
        emit ContentsComplete(jobId, appeal.tokens, conveneBy);
    }

    // ── The committee ───────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAppeals
    function convene(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        JobId jobId = _before(AppealPhase.Complete, posting, sealing, claiming);
        Appeal storage appeal = _appeals[jobId];
        bytes32 draw = DrawLib.appealDraw(JobId.unwrap(jobId), _beaconOf(appeal.blockNumber));
        uint96 lock = posting.lock;
        posting.slots = appeal.slots;
        posting.postedAt = appeal.at;
        (uint32[] memory seats, address[] memory owners) =
            _drawSeats(posting, draw, _sizeOf(sealing.committee.length));
        uint256 running = appeal.tokens / TOKENS_PER_SECOND;
        uint40 commitBy = _from(OPENING_WINDOW + Math.min(running, OPENING_WINDOW));
        for (uint256 i = 0; i < seats.length; ++i) {
            uint96 held = _takesOn(owners[i], running, commitBy) ? _lockUpTo(owners[i], lock) : 0;
            appeal.committee.push(Member(seats[i], owners[i], 0, held));
        }
        appeal.phase = AppealPhase.Convened;
        _jobs[jobId].reverify(commitBy);
        emit Convened(jobId, appeal.committee, commitBy);
    }

    /// @dev Nobody is fined for what others heap on it: whoever cannot be through with this, behind what it was drawn
    /// for before, by half a window before commitments are due stands without a lock. It may commit, and is paid for
    /// it. Why not draw another one: whoever fills the queues of the honest would choose the committee.
    function _takesOn(address owner, uint256 running, uint256 commitBy) private returns (bool) {
        uint256 until = Math.max(block.timestamp, _rerunUntil[owner]) + running;
        if (until + OPENING_WINDOW / 2 > commitBy) return false;
        _rerunUntil[owner] = uint40(until); // below commitBy
        return true;
    }

    /// @inheritdoc IAppeals
    function recommit(JobId jobId, uint256 index, Inner calldata inner) external {
        Appeal storage appeal = _at(jobId, AppealPhase.Convened);
        JobLib.requireBefore(_jobs[jobId].deadline);
        Member storage member = _memberOf(appeal, index);
        require(member.inner == 0, AlreadyCommitted(index));
        bytes32 task = HashLib.appealTask(jobId, index, member.owner);
        require(inner.taskHash == task, TaskHashWrong(inner.taskHash, task));
        member.inner = HashLib.hashInner(inner);
        emit Recommitted(jobId, index, inner);
        if (++appeal.committed == appeal.committee.length) _closeCommits(jobId, appeal);
    }

    /// @inheritdoc IAppeals
    function closeCommits(JobId jobId) external {
        Appeal storage appeal = _at(jobId, AppealPhase.Convened);
        JobLib.requireAfter(_jobs[jobId].deadline);
        _closeCommits(jobId, appeal);
    }

    /// @dev Too few for any clique: there is nothing to start.
    function _closeCommits(JobId jobId, Appeal storage appeal) private {
        appeal.phase = AppealPhase.Closed;
        appeal.blockNumber = uint40(block.number);
        bool enough = appeal.committed >= VerdictLib.majority(appeal.committee.length);
        uint40 startBy = _from(enough ? OPENING_WINDOW : 0);
        _jobs[jobId].reverify(startBy);
        emit CommitsClosed(jobId, appeal.committed, startBy);
    }

    // ── The round ───────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAppeals
    function startRound(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        JobId jobId = _before(AppealPhase.Closed, posting, sealing, claiming);
        Appeal storage appeal = _appeals[jobId];
        sealing.committee = _parties(appeal.committee, sealing.committee);
        sealing.sealedBlock = appeal.blockNumber;
        claiming = Claiming(address(0), Outcome.None, 0, 0, 0, _beaconOf(appeal.blockNumber));
        bytes32 sealedRecord = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        bytes32 round = RecordLib.claimed(sealedRecord, claiming);
        appeal.round = round;
        appeal.phase = AppealPhase.Opened;
        uint40 openBy = _from(OPENING_WINDOW);
        _jobs[jobId].reverify(openBy);
        emit RoundStarted(jobId, sealing, claiming.beacon, openBy);
        IAdjudicator(ADJUDICATOR)
            .open(
                jobId, round, _from(OPENING_WINDOW / 2), openBy, _from(2 * uint256(OPENING_WINDOW))
            );
    }

    /// @inheritdoc IAppeals
    function rejectTokens(JobId jobId, uint256 index, uint8 reason) external {
        Appeal storage appeal = _at(jobId, AppealPhase.Opened);
        JobLib.requireBefore(_jobs[jobId].deadline);
        require(_memberOf(appeal, index).inner != 0, NotCommitted(index));
        require(VerdictLib.isAttested(reason), OutcomeInvalid());
        appeal.objections[index] = reason;
        emit TokensRejected(jobId, index, reason);
    }

    // ── The end ─────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAppeals
    function conclude(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId, uint256 deadline) = _at(Status.Reverifying, posting, sealing, claiming);
        Appeal storage appeal = _appeals[jobId];
        AppealPhase phase = appeal.phase;
        require(phase != AppealPhase.Convened, PhaseWrong(phase, AppealPhase.Closed));
        Second memory second;
        second.stands = true;
        if (phase == AppealPhase.Opened) {
            second = _heard(appeal, posting, sealing);
        } else {
            JobLib.requireAfter(deadline);
            second.verdict = _unheard(appeal);
        }
        Outcome before = claiming.outcome;
        if (!appeal.ofClaim) (before,) = _foundBefore(jobId, claiming);
        _hearReason(second.verdict, _disputes[jobId].reason);
        if (second.verdict.outcome == Outcome.Inconclusive) {
            second.stands = true;
            second.strangers = 0;
        } else {
            second.stands = second.verdict.outcome == before;
        }
        emit Concluded(
            jobId, second.verdict.outcome, second.verdict.reason, second.stands, second.strangers
        );
        _jobs[jobId].end();
        if (appeal.ofClaim) _pay(jobId, posting, sealing, claiming, second);
        else _payJudged(jobId, posting, sealing, claiming, second);
    }

    /// @dev What the first round found, with what was said since.
    function _foundBefore(JobId jobId, Claiming memory claiming)
        private
        view
        returns (Outcome, uint8)
    {
        (Verdict memory verdict,,) = _weigh(claiming, _disputes[jobId]);
        return (verdict.outcome, verdict.reason);
    }

    /// @dev What was attested or proven on tokens while this went on, and states cannot answer.
    function _hearReason(Verdict memory verdict, uint8 reason) private pure {
        bool rejects = verdict.outcome == Outcome.Slash || verdict.outcome == Outcome.Refund;
        if (reason != 0 && !rejects) (verdict.outcome, verdict.reason) = (Outcome.Refund, reason);
    }

    /// @dev What the openings say, and the members' words on the tokens.
    function _heard(Appeal storage appeal, Posting memory posting, Sealing memory sealing)
        private
        view
        returns (Second memory second)
    {
        uint256 size = appeal.committee.length;
        ModelId modelId = posting.quote.modelId;
        IAdjudicator adjudicator = IAdjudicator(ADJUDICATOR);
        Verdict memory verdict =
            adjudicator.verdict(appeal.round, modelId, posting.job.requests, size);
        bool judged =
            verdict.outcome == Outcome.Accept || verdict.reason == VerdictLib.STATES_DIFFER;
        (second.near, second.strangers) = adjudicator.witnesses(
            appeal.round,
            modelId,
            posting.job.requests,
            size,
            size + sealing.committee.length,
            judged ? verdict.paid : 0
        );
        if (verdict.outcome != Outcome.Slash && verdict.outcome != Outcome.Refund) {
            uint8 reason = _objection(appeal, size);
            if (reason == 0 && verdict.reason == VerdictLib.TASK_MISMATCH) {
                reason = _mismatch(appeal, size);
            }
            if (reason != 0) (verdict.outcome, verdict.reason) = (Outcome.Refund, reason);
        }
        _leaveOut(appeal, verdict);
        second.verdict = verdict;
    }

    /// @dev Where nothing was revealed nobody is late with an opening; who did not even commit is.
    function _leaveOut(Appeal storage appeal, Verdict memory verdict) private view {
        for (uint256 i = 0; i < appeal.committee.length; ++i) {
            if (appeal.committee[i].inner != 0) continue;
            verdict.paid &= ~uint8(1 << i); // at most 7
            verdict.lost |= uint8(2 << i);
        }
    }

    /// @dev The reason of the first member that rejects the tokens, if a majority does.
    function _objection(Appeal storage appeal, uint256 size) private view returns (uint8 reason) {
        uint256 count = 0;
        for (uint256 i = size; i > 0; --i) {
            if (appeal.objections[i - 1] == 0) continue;
            reason = appeal.objections[i - 1];
            ++count;
        }
        if (count < VerdictLib.majority(size)) return 0;
    }

    /// @dev Here no scheduler hands out tasks: where a majority ran another text than the inferencer says it did,
    /// that is the one on the chain, and the inferencer's is not.
    function _mismatch(Appeal storage appeal, uint256 size) private view returns (uint8) {
        (,,,, uint16 mismatched,) = IAdjudicator(ADJUDICATOR).roundOf(address(this), appeal.round);
        uint256 count = 0;
        for (uint256 party = 1; party <= size; ++party) {
            count += (mismatched >> party) & 1;
        }
        return count < VerdictLib.majority(size) ? 0 : VerdictLib.OUTPUT_MISMATCH;
    }

    /// @dev No round: whoever was drawn and did not commit is silent, the others are paid.
    function _unheard(Appeal storage appeal) private view returns (Verdict memory verdict) {
        verdict.outcome = Outcome.Inconclusive;
        verdict.reason = VerdictLib.NOT_COMPARED;
        for (uint256 i = 0; i < appeal.committee.length; ++i) {
            if (appeal.committee[i].inner != 0) verdict.paid |= uint8(1 << i); // at most 7
            else verdict.lost |= uint8(2 << i);
        }
    }

    // ── Money ───────────────────────────────────────────────────────────────────────────────────

    function _pay(
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        Second memory second
    ) private {
        Appeal storage appeal = _appeals[jobId];
        (uint256 wages, uint256 burnt) = _payCommittee(jobId, appeal, second.verdict);
        Ending memory ending;
        uint8 strangers = second.strangers;
        uint256 due = REVERIFY_BOND; // from the requester
        uint256 reward = 0; // to it
        if (second.stands) {
            ending.verdict = Verdict(
                claiming.outcome, claiming.reason, strangers << 1, claiming.paid & ~strangers
            );
            ending.finder = ending.claimer = claiming.claimer;
            _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
            // A round without an answer is nobody's fault, one that never was is the requester's.
            bool heard = appeal.phase == AppealPhase.Opened;
            if (heard && second.verdict.outcome == Outcome.Inconclusive) due = wages;
            burnt += due - wages;
        } else {
            ending.verdict = second.verdict;
            ending.verdict.lost = (second.verdict.lost & 1) | (strangers << 1);
            ending.verdict.paid = second.near;
            ending.finder = appeal.requester;
            _overturn(jobId, second.verdict.outcome);
            uint256 forfeit = CLAIM_BOND;
            // As in a public round: half of it burns, and nobody gains.
            if (claiming.reason == VerdictLib.WITHHELD) {
                forfeit = (forfeit + 1) / 2;
                burnt += forfeit;
                due = wages;
            } else if (forfeit < wages) {
                due = wages - forfeit;
            } else {
                due = 0;
                reward = forfeit - wages;
            }
            _close(jobId, claiming.claimer, CLAIM_BOND, forfeit, 0);
        }
        _close(jobId, appeal.requester, REVERIFY_BOND, due, reward);
        _settle(jobId, posting, sealing, ending);
        _burn(jobId, burnt);
    }

    /// @dev What the claim says is not how the job ended.
    function _overturn(JobId jobId, Outcome outcome) private {
        Dispute storage dispute = _disputes[jobId];
        dispute.outcome = outcome;
        dispute.appealed = true;
    }

    /// @dev After a public round: where its verdict stands it pays as it would have, less to those who lied; else
    /// the new one does, and who asked stands in the place of whoever was right in the round.
    function _payJudged(
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        Second memory second
    ) private {
        Appeal storage appeal = _appeals[jobId];
        (uint256 wages, uint256 burnt) = _payCommittee(jobId, appeal, second.verdict);
        Dispute storage dispute = _disputes[jobId];
        uint8 strangers = second.strangers;
        uint256 due = wages; // from the requester
        if (second.stands) {
            dispute.lost |= strangers << 1;
            dispute.paid &= ~strangers;
            bool heard = appeal.phase == AppealPhase.Opened;
            // A round without an answer is nobody's fault, one that never was is the requester's.
            if (!heard || second.verdict.outcome != Outcome.Inconclusive) due = REVERIFY_BOND;
            burnt += due - wages;
        } else {
            dispute.outcome = second.verdict.outcome;
            dispute.cause = second.verdict.reason;
            dispute.lost = (second.verdict.lost & 1) | (strangers << 1);
            dispute.paid = second.near;
            dispute.finder = appeal.requester;
            dispute.appealed = true;
        }
        _close(jobId, appeal.requester, REVERIFY_BOND, due, 0);
        _conclude(jobId, posting, sealing, claiming);
        _burn(jobId, burnt);
    }

    /// @dev Wages are covered by the requester's bond; half of it is over, so that who asks without cause loses,
    /// whoever it draws. The silent lose their locks.
    function _payCommittee(JobId jobId, Appeal storage appeal, Verdict memory verdict)
        private
        returns (uint256 wages, uint256 burnt)
    {
        uint256 size = appeal.committee.length;
        for (uint256 i = 0; i < size; ++i) {
            Member storage member = appeal.committee[i];
            uint256 lost = (verdict.lost >> (i + 1)) & 1 == 0 ? 0 : member.lock;
            uint256 wage = (verdict.paid >> i) & 1 == 0 ? 0 : REVERIFY_BOND / (2 * size);
            _close(jobId, member.owner, member.lock, lost, wage);
            wages += wage;
            burnt += lost;
        }
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAppeals
    function appealOf(JobId jobId)
        external
        view
        returns (AppealPhase phase, address requester, Member[] memory committee)
    {
        Appeal storage appeal = _appeals[jobId];
        return (appeal.phase, appeal.requester, appeal.committee);
    }

    // ── Checks ──────────────────────────────────────────────────────────────────────────────────

    /// @dev The job of these values, in this phase and before its deadline.
    function _before(
        AppealPhase phase,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming
    ) private view returns (JobId jobId) {
        uint256 deadline;
        (jobId, deadline) = _at(Status.Reverifying, posting, sealing, claiming);
        _at(jobId, phase);
        JobLib.requireBefore(deadline);
    }

    function _at(JobId jobId, AppealPhase phase) private view returns (Appeal storage appeal) {
        _jobs[jobId].requireStatus(jobId, Status.Reverifying);
        appeal = _appeals[jobId];
        require(appeal.phase == phase, PhaseWrong(appeal.phase, phase));
    }

    /// @dev The member, whom the caller must act for.
    function _memberOf(Appeal storage appeal, uint256 index)
        private
        view
        returns (Member storage member)
    {
        require(index < appeal.committee.length, MemberUnknown(index));
        member = appeal.committee[index];
        require(_actsFor(msg.sender, member.owner), NotOperator(msg.sender));
    }

    function _requireOwners(ModelId modelId, uint256 size) private view {
        uint256 required = _sizeOf(size) + 1;
        uint256 owners = _models[modelId].owners;
        require(owners >= required, TooFewOwners(owners, required));
    }

    /// @dev Twice the first committee and one more, an odd number; at most what a round can hold.
    function _sizeOf(uint256 size) private pure returns (uint256) {
        return Math.min(2 * size + 1, MOST);
    }

    /// @dev The new committee, then the first one.
    function _parties(Member[] storage members, Member[] memory witnesses)
        private
        view
        returns (Member[] memory parties)
    {
        uint256 size = members.length;
        parties = new Member[](size + witnesses.length);
        for (uint256 i = 0; i < size; ++i) {
            parties[i] = members[i];
        }
        for (uint256 i = 0; i < witnesses.length; ++i) {
            parties[size + i] = witnesses[i];
        }
    }
}
