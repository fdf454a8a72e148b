// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IExtension} from "../interfaces/IExtension.sol";
import {Panels} from "./Panels.sol";

/// @notice What a contract does not know it lets the next one do, on its own storage.
/// @dev One contract may hold 24 576 bytes. The rest of VeriLLM's code stands at further addresses, fixed at
/// deployment like the code itself: nobody can change them. All share Terms, Ledger, Roster, Docket and Panels, which hold
/// all storage; doors hold none. Called at its own address an extension finds no job and no money.
abstract contract Extended is Panels {
    address private immutable NEXT;

    constructor(address next) {
        NEXT = next;
    }

    // solhint-disable no-complex-fallback
    /// @notice Runs what this contract does not know as the next one's code.
    fallback() external {
        address next = NEXT;
        require(next != address(0), IExtension.FunctionUnknown(msg.sig));
        assembly ("memory-safe") {
            let data := mload(0x40)
            calldatacopy(data, 0, calldatasize())
            let done := delegatecall(gas(), next, data, calldatasize(), 0, 0)
            returndatacopy(data, 0, returndatasize())
            switch done
            case 0 { revert(data, returndatasize()) }
            default { return(data, returndatasize()) }
        }
    }
}
