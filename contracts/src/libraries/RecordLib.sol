// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Claiming, Posting, Sealing} from "../interfaces/Types.sol";

/// @notice The one hash that the contract keeps of a job; each hashes the one before with what is new.
library RecordLib {
    function posted(Posting memory posting) internal pure returns (bytes32) {
        return keccak256(abi.encode(posting));
    }

    function sealedRecord(bytes32 before, Sealing memory sealing) internal pure returns (bytes32) {
        return keccak256(abi.encode(before, sealing));
    }

    function claimed(bytes32 before, Claiming memory claiming) internal pure returns (bytes32) {
        return keccak256(abi.encode(before, claiming));
    }
}
