// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {JobId, ModelId} from "../interfaces/Types.sol";
import {TermsLib} from "../libraries/TermsLib.sol";
import {Docket} from "./Docket.sol";

/// @notice Committees that had to be summoned, and tasks that were never posted; the doors are in Summonses and
/// TaskClaims.
abstract contract Panels is Docket {
    /// @dev A place of a summoned committee: `number` of its task, `answerBy` non-zero iff it was summoned, `inner`
    /// non-zero iff it answered. Four slots.
    struct Place {
        address owner;
        uint96 lock;
        uint32 seat;
        uint16 number;
        uint40 answerBy;
        bytes32 taskHash;
        bytes32 inner;
    }

    /// @dev What a job's first summons drew. It stays: it says which task was whose.
    struct Panel {
        bytes32 secret;
        bytes32 beacon;
        address scheduler;
        uint16 replaced;
        Place[] places;
    }

    /// @dev A worker's claim on a scheduler's stake, `amount` 0 once it is closed; it stays, so that nothing is
    /// claimed twice. `exposure` is locked on the worker, which exists.
    struct TaskClaim {
        address scheduler;
        uint96 amount;
        address worker;
        uint96 exposure;
        uint40 claimedBlock;
        uint40 collectableAt;
        uint32 seat;
        uint64 promptTokens;
        uint64 newTokens;
        uint96 due;
        ModelId modelId;
        bytes32 taskId;
        bytes32 outputsRoot;
        bytes32 requestsRoot;
    }

    mapping(JobId => Panel) internal _panels;
    mapping(address owner => uint40) internal _busyUntil;
    mapping(bytes32 commitment => TaskClaim) internal _taskClaims;
    /// @dev Until when an owner runs what re-verifications drew it for, at the pace that they count with.
    mapping(address owner => uint40) internal _rerunUntil;

    /// @dev The number of the task that party `k` of a job was given: its own, unless somebody was replaced.
    function _numberOf(JobId jobId, uint256 k) internal view returns (uint256) {
        Place[] storage places = _panels[jobId].places;
        return k == 0 || k > places.length ? k : places[k - 1].number;
    }

    /// @dev Until when a summoned job can be sealed at the latest.
    function _latestSeal(uint256 postedAt) internal view returns (uint256) {
        return postedAt + SEAL_WINDOW + TermsLib.summonsSpan(SEAL_WINDOW, OPENING_WINDOW);
    }
}
