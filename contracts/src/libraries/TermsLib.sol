// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IExtension} from "../interfaces/IExtension.sol";
import {ILedger} from "../interfaces/ILedger.sol";
import {Config} from "../interfaces/Types.sol";

/// @notice Refuses a deployment whose terms are unsafe.
library TermsLib {
    uint256 internal constant BPS = 10_000;
    /// @dev Keeps every sum of windows far below what a uint40 timestamp leaves.
    uint256 internal constant MAX_WINDOW = 365 days;
    /// @dev Opening windows of a re-verification: contents, draw, commitments and the time to run them, start, openings
    /// and comparisons.
    uint256 internal constant APPEAL_WINDOWS = 7;
    /// @dev Demands of a bundle that one job can see.
    uint256 internal constant MAX_DEMANDS = 3;

    /// @notice What the contracts that share the storage must agree on: all but where the first of them stands.
    function hashOf(Config memory terms) internal pure returns (bytes32) {
        address recourse = terms.recourse;
        terms.recourse = address(0);
        bytes32 hash = keccak256(abi.encode(terms));
        terms.recourse = recourse;
        return hash;
    }

    function requireSafe(Config memory terms) internal view {
        require(terms.token.code.length != 0, ILedger.ConfigUnsafe("token"));
        require(terms.adjudicator.code.length != 0, ILedger.ConfigUnsafe("adjudicator"));
        require(terms.prover.code.length != 0, ILedger.ConfigUnsafe("prover"));
        _requireWindow(terms.sealWindow, "sealWindow");
        _requireWindow(terms.claimWindow, "claimWindow");
        _requireWindow(terms.disputeWindow, "disputeWindow");
        _requireWindow(terms.openingWindow, "openingWindow");
        _requireWindow(terms.unbonding, "unbonding");
        _requireWindow(terms.unlockDelay, "unlockDelay");
        _requireWindow(terms.keyGrace, "keyGrace");
        _requireWindow(terms.jobWindow, "jobWindow");
        // A seat outlives the longest path of a job that could still draw it.
        require(terms.unbonding > longestPath(terms), ILedger.ConfigUnsafe("unbonding"));
        // A deposit stays for as long as a job signed against it may still be posted.
        require(terms.unlockDelay >= terms.jobWindow, ILedger.ConfigUnsafe("unlockDelay"));
        // Exposure at least the fee: then the committee and the finder can be paid from it.
        require(terms.kappaBps >= BPS, ILedger.ConfigUnsafe("kappaBps"));
        require(terms.reserveBps < BPS, ILedger.ConfigUnsafe("reserveBps"));
        uint256 shares = uint256(terms.inferencerBps) + terms.committeeBps + terms.schedulerBps;
        require(shares == BPS, ILedger.ConfigUnsafe("shares"));
        require(terms.inferencerBps != 0, ILedger.ConfigUnsafe("inferencerBps"));
        require(terms.committeeBps != 0, ILedger.ConfigUnsafe("committeeBps"));
        require(terms.claimBond != 0, ILedger.ConfigUnsafe("claimBond"));
        require(terms.challengeBond != 0, ILedger.ConfigUnsafe("challengeBond"));
        require(terms.reverifyBond != 0, ILedger.ConfigUnsafe("reverifyBond"));
        require(terms.recourse.code.length != 0, ILedger.ConfigUnsafe("recourse"));
        bytes32 hash = IExtension(terms.recourse).termsHash();
        require(hash == hashOf(terms), ILedger.ConfigUnsafe("recourse"));
    }

    /// @notice How long a job can take from its signature to its end, where somebody takes each next step in time.
    function longestPath(Config memory terms) internal pure returns (uint256) {
        return _posting(terms) + _claims(terms) + _round(terms) + _appeal(terms);
    }

    function _posting(Config memory terms) private pure returns (uint256) {
        return uint256(terms.jobWindow) + terms.sealWindow
            + summonsSpan(terms.sealWindow, terms.openingWindow);
    }

    /// @dev The first claim, and for each demand either another one or another window of the same.
    function _claims(Config memory terms) private pure returns (uint256) {
        uint256 claim = uint256(terms.claimWindow) + terms.disputeWindow;
        return claim + MAX_DEMANDS * (claim + terms.openingWindow);
    }

    /// @dev Openings, comparisons, a window to call the verdict, the window to appeal it, and another one after what
    /// was added in it.
    function _round(Config memory terms) private pure returns (uint256) {
        return 3 * uint256(terms.openingWindow) + 2 * uint256(terms.disputeWindow);
    }

    function _appeal(Config memory terms) private pure returns (uint256) {
        return APPEAL_WINDOWS * uint256(terms.openingWindow);
    }

    /// @notice How much longer a job may wait for its seal if somebody has to be summoned: for an answer, for those of
    /// three that replace one another, and for the seal.
    function summonsSpan(uint256 sealWindow, uint256 openingWindow)
        internal
        pure
        returns (uint256)
    {
        return 4 * openingWindow + sealWindow;
    }

    function _requireWindow(uint32 window, bytes32 field) private pure {
        require(window != 0 && window <= MAX_WINDOW, ILedger.ConfigUnsafe(field));
    }
}
