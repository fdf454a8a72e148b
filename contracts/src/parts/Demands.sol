// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IRecourse} from "../interfaces/IRecourse.sol";
import {Claiming, JobId, Posting, Sealing, Status} from "../interfaces/Types.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {TermsLib} from "../libraries/TermsLib.sol";
import {Docket} from "./Docket.sol";

/// @notice A claim stands on a bundle that anyone can have: who asks for it on chain gets it, or the claim is void.
abstract contract Demands is IRecourse, Docket {
    using JobLib for JobLib.State;

    /// @dev About 2.6 million gas of calldata: one chunk a transaction fits every block.
    uint256 internal constant CHUNK = 65_536;
    uint256 internal constant MAX_CHUNKS = 256;

    /// @inheritdoc IRecourse
    function demand(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId, uint256 deadline) = _at(Status.Claimed, posting, sealing, claiming);
        JobLib.requireBefore(deadline);
        Demand storage asked = _demands[jobId];
        require(!asked.answered, AlreadyServed(jobId));
        require(asked.count < TermsLib.MAX_DEMANDS, TooManyDemands(jobId));
        address demander = _operatorOf(msg.sender);
        _lock(demander, CHALLENGE_BOND);
        asked.demander = demander;
        ++asked.count;
        uint40 openBy = _from(OPENING_WINDOW);
        _jobs[jobId].demand(openBy);
        emit BundleDemanded(jobId, demander, openBy);
    }

    /// @inheritdoc IRecourse
    function serveBundle(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        uint16 index,
        bytes calldata chunk,
        bytes32[] calldata hashes
    ) external {
        (JobId jobId, uint256 deadline) = _at(Status.Demanded, posting, sealing, claiming);
        JobLib.requireBefore(deadline);
        require(index < hashes.length && hashes.length <= MAX_CHUNKS, ChunkInvalid(index));
        bool last = uint256(index) + 1 == hashes.length;
        bool sized = last ? chunk.length != 0 && chunk.length <= CHUNK : chunk.length == CHUNK;
        bool told = keccak256(abi.encodePacked(hashes)) == claiming.bundle;
        require(sized && told && keccak256(chunk) == hashes[index], ChunkInvalid(index));
        Demand storage asked = _demands[jobId];
        uint256 served = asked.served | (1 << index);
        asked.served = served;
        emit ChunkServed(jobId, index, uint16(hashes.length)); // at most 256
        if (served != type(uint256).max >> (MAX_CHUNKS - hashes.length)) return;
        asked.answered = true;
        uint40 finalizeAfter = _from(DISPUTE_WINDOW);
        _jobs[jobId].answer(finalizeAfter);
        emit BundleServed(jobId, finalizeAfter);
        _close(jobId, asked.demander, CHALLENGE_BOND, CHALLENGE_BOND, 0);
        _close(jobId, claiming.claimer, 0, 0, CHALLENGE_BOND);
    }

    /// @inheritdoc IRecourse
    function voidClaim(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId, uint256 deadline) = _at(Status.Demanded, posting, sealing, claiming);
        JobLib.requireAfter(deadline);
        Demand storage asked = _demands[jobId];
        asked.served = 0;
        // The claim had it; by now the chain may have lost it.
        _kept[sealing.sealedBlock] = claiming.beacon;
        uint40 claimBy = _from(CLAIM_WINDOW);
        _jobs[jobId].reopen(RecordLib.sealedRecord(RecordLib.posted(posting), sealing), claimBy);
        emit ClaimVoided(jobId, claiming.claimer, claimBy);
        _close(jobId, claiming.claimer, CLAIM_BOND, CLAIM_BOND, 0);
        _close(jobId, asked.demander, CHALLENGE_BOND, 0, CLAIM_BOND);
    }
}
