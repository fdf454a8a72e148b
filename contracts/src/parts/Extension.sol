// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IExtension} from "../interfaces/IExtension.sol";
import {Config} from "../interfaces/Types.sol";
import {TermsLib} from "../libraries/TermsLib.sol";
import {Extended} from "./Extended.sol";
import {Terms} from "./Terms.sol";

/// @notice An extension: made for the terms of the contract that runs it, and of the one after it.
abstract contract Extension is IExtension, Extended {
    bytes32 private immutable TERMS_HASH;

    constructor(Config memory terms, address next) Terms(terms) Extended(next) {
        bytes32 hash = TermsLib.hashOf(terms);
        TERMS_HASH = hash;
        if (next == address(0)) return;
        bytes32 other = IExtension(next).termsHash();
        require(other == hash, TermsMismatch(hash, other));
    }

    /// @inheritdoc IExtension
    function termsHash() external view returns (bytes32) {
        return TERMS_HASH;
    }
}
