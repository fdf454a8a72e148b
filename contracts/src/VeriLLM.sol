// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IVeriLLMCore} from "./interfaces/IVeriLLMCore.sol";
import {Config} from "./interfaces/Types.sol";
import {TermsLib} from "./libraries/TermsLib.sol";
import {Accounts} from "./parts/Accounts.sol";
import {Extended} from "./parts/Extended.sol";
import {Jobs} from "./parts/Jobs.sol";
import {Seats} from "./parts/Seats.sol";
import {Terms} from "./parts/Terms.sol";

/// @title VeriLLM
/// @notice Stakes, jobs and verdicts of a verifiable inference network; see IVeriLLM.
/// @dev Doors in the order of a participant's life: Accounts, Seats, Jobs; what is off the happy path is in Recourse
/// and what follows it. All storage is in the bases of Extended.
contract VeriLLM is Accounts, Seats, Jobs, Extended {
    Config private _config;

    constructor(Config memory terms) Terms(terms) Extended(terms.recourse) {
        TermsLib.requireSafe(terms);
        _config = terms;
    }

    /// @inheritdoc IVeriLLMCore
    function config() external view returns (Config memory) {
        return _config;
    }
}
