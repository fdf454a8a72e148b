// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Config} from "./interfaces/Types.sol";
import {Extension} from "./parts/Extension.sol";
import {Reverifications} from "./parts/Reverifications.sol";

/// @title Appeals
/// @notice What VeriLLM does off the happy path, last part: re-verification; see IAppeals.
contract Appeals is Reverifications, Extension {
    constructor(Config memory terms, address next) Extension(terms, next) {}
}
