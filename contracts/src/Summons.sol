// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Config} from "./interfaces/Types.sol";
import {Extension} from "./parts/Extension.sol";
import {Summonses} from "./parts/Summonses.sol";

/// @title Summons
/// @notice What VeriLLM does where a drawn member keeps silent; see ISummons.
contract Summons is Summonses, Extension {
    constructor(Config memory terms, address next) Extension(terms, next) {}
}
