// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Config} from "./interfaces/IVeriLLM.sol";
import {Disputes} from "./parts/Disputes.sol";
import {Terms} from "./parts/Terms.sol";

/// @title VeriLLM
/// @notice Stakes, jobs and verdicts of a verifiable inference network; see IVeriLLM.
/// @dev One contract in parts, in the order of a participant's life: Terms, Accounts, Seats, Jobs, Disputes.
contract VeriLLM is Disputes {
    constructor(Config memory terms) Terms(terms) {}
}
