// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Config} from "./interfaces/Types.sol";
import {Extension} from "./parts/Extension.sol";
import {TaskClaims} from "./parts/TaskClaims.sol";

/// @title Wages
/// @notice What VeriLLM does for a worker whose scheduler never posts; see IWages.
contract Wages is TaskClaims, Extension {
    constructor(Config memory terms, address next) Extension(terms, next) {}
}
