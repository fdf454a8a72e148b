// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Inner, Job, JobId, Outcome, Quote} from "../interfaces/Types.sol";

/// @notice The EIP-712 struct hashes and the ids (docs/protocol.md §3).
library HashLib {
    bytes32 internal constant QUOTE_TYPEHASH = keccak256(
        "Quote(address scheduler,bytes32 modelId,uint96 unitPrice,bytes32 drawCommit,uint40 expiry)"
    );
    bytes32 internal constant JOB_TYPEHASH = keccak256(
        "Job(address client,bytes32 quote,bytes32 requestsRoot,uint16 requests,uint96 maxFee,uint40 deadline,uint256 nonce)"
    );
    bytes32 internal constant COMMITMENT_TYPEHASH =
        keccak256("Commitment(bytes32 taskId,bytes32 inner)");
    bytes32 internal constant APPEAL_TASK_TYPEHASH =
        keccak256("AppealTask(bytes32 jobId,uint256 index,address owner)");
    bytes32 internal constant ATTESTATION_TYPEHASH =
        keccak256("Attestation(bytes32 jobId,uint8 outcome,uint8 reason,bytes32 bundle)");

    function hashQuote(Quote memory quote) internal pure returns (bytes32) {
        return keccak256(abi.encode(QUOTE_TYPEHASH, quote));
    }

    function hashJob(Job memory job) internal pure returns (bytes32) {
        return keccak256(abi.encode(JOB_TYPEHASH, job));
    }

    function hashInner(Inner memory inner) internal pure returns (bytes32) {
        return keccak256(abi.encode(inner));
    }

    function hashCommitment(bytes32 task, bytes32 inner) internal pure returns (bytes32) {
        return keccak256(abi.encode(COMMITMENT_TYPEHASH, task, inner));
    }

    function hashAttestation(JobId jobId, Outcome outcome, uint8 reason, bytes32 bundle)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(ATTESTATION_TYPEHASH, jobId, outcome, reason, bundle));
    }

    /// @notice What stands for the task of a re-verifier: nobody hands it one, and no two are the same.
    function appealTask(JobId jobId, uint256 index, address owner) internal pure returns (bytes32) {
        return keccak256(abi.encode(APPEAL_TASK_TYPEHASH, jobId, index, owner));
    }

    /// @notice The secret's commitment in a quote.
    function drawCommit(bytes32 secret) internal pure returns (bytes32) {
        return keccak256(abi.encode(secret));
    }

    /// @notice The task of party `k`: 0 the inferencer, 1..m the committee.
    function taskId(bytes32 secret, JobId jobId, uint256 k) internal pure returns (bytes32) {
        return keccak256(abi.encode(secret, jobId, k));
    }
}
