// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Config} from "./interfaces/Types.sol";
import {Convictions} from "./parts/Convictions.sol";
import {Demands} from "./parts/Demands.sol";
import {Disputes} from "./parts/Disputes.sol";
import {Extension} from "./parts/Extension.sol";

/// @title Recourse
/// @notice What VeriLLM does off the happy path, first part; see IRecourse.
contract Recourse is Disputes, Demands, Convictions, Extension {
    constructor(Config memory terms, address next) Extension(terms, next) {}
}
