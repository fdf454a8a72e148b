// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../interfaces/IAdjudicator.sol";
import {
    Claiming,
    IVeriLLM,
    JobId,
    Outcome,
    Posting,
    Sealing,
    Status
} from "../interfaces/IVeriLLM.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Jobs} from "./Jobs.sol";

/// @notice The way into the public round and out of it; the round itself is the Adjudicator's.
abstract contract Disputes is Jobs {
    using JobLib for JobLib.State;

    mapping(JobId => address challenger) private _challengers;

    /// @inheritdoc IVeriLLM
    function challenge(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        address challenger = operatorOf(msg.sender);
        bytes32 record = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        if (job.status == Status.Sealed) {
            job.requireAt(jobId, Status.Sealed, record);
            JobLib.requireAfter(job.deadline);
            claiming = Claiming(address(0), Outcome.None, 0, 0, _beacon(sealing.sealedBlock));
            if (claiming.beacon == 0) {
                // Nobody kept it, so no positions exist, and the job ends here.
                job.end();
                Ending memory ending;
                ending.outcome = Outcome.Inconclusive;
                ending.reason = VerdictLib.BEACON_LOST;
                return _settle(jobId, posting, sealing, ending);
            }
            record = RecordLib.claimed(record, claiming);
        } else {
            record = RecordLib.claimed(record, claiming);
            job.requireAt(jobId, Status.Claimed, record);
            JobLib.requireBefore(job.deadline);
            _lock(challenger, CHALLENGE_BOND);
        }
        uint40 openBy = _from(OPENING_WINDOW);
        job.challenge(record, openBy);
        _challengers[jobId] = challenger;
        emit ChallengeOpened(jobId, challenger, openBy, claiming.beacon);
        IAdjudicator(ADJUDICATOR)
            .open(
                jobId, record, _from(OPENING_WINDOW / 2), openBy, _from(2 * uint256(OPENING_WINDOW))
            );
    }

    /// @inheritdoc IVeriLLM
    function adjudicate(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId,) = _at(Status.Challenged, posting, sealing, claiming);
        JobLib.State storage job = _jobs[jobId];
        Ending memory ending;
        (ending.outcome, ending.reason, ending.lost) = IAdjudicator(ADJUDICATOR)
            .verdict(
                job.record, posting.quote.modelId, posting.job.requests, sealing.committee.length
            );
        // What the committee attested and the chain cannot recompute refunds, but never slashes.
        bool rejected = ending.outcome == Outcome.Slash || ending.outcome == Outcome.Refund;
        bool upheld = ending.outcome == claiming.outcome;
        if (VerdictLib.isAttested(claiming.reason) && !rejected) {
            ending.outcome = Outcome.Refund;
            ending.reason = claiming.reason;
            upheld = true;
        }
        job.end();
        address challenger = _challengers[jobId];
        ending.finder = upheld ? claiming.claimer : challenger;
        ending.claimer = upheld ? claiming.claimer : address(0);
        if (claiming.claimer == address(0)) {
            // Nobody claimed: the scheduler pays what a wrong claim would have cost. Its bond is still locked, so
            // this is there, and what is left of the bond is unlocked below.
            uint256 forfeit = CLAIM_BOND < posting.bond ? CLAIM_BOND : posting.bond;
            _close(jobId, posting.quote.scheduler, 0, forfeit, 0);
            _close(jobId, challenger, 0, 0, forfeit);
        } else if (upheld) {
            _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
            _close(jobId, challenger, CHALLENGE_BOND, CHALLENGE_BOND, 0);
            _shareBond(ending, sealing.committee.length);
        } else {
            _close(jobId, claiming.claimer, CLAIM_BOND, CLAIM_BOND, 0);
            _close(jobId, challenger, CHALLENGE_BOND, 0, CLAIM_BOND);
        }
        _settle(jobId, posting, sealing, ending);
    }

    /// @dev A challenge without cause pays those who had to open, in equal parts.
    function _shareBond(Ending memory ending, uint256 size) private view {
        uint256 opened = 0;
        for (uint256 party = 0; party <= size; ++party) {
            opened += ((ending.lost >> party) & 1) ^ 1;
        }
        if (opened != 0) ending.bonus = CHALLENGE_BOND / opened;
        ending.dust = CHALLENGE_BOND - ending.bonus * opened;
    }
}
