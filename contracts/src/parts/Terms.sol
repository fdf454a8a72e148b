// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "../interfaces/ILedger.sol";
import {Config} from "../interfaces/Types.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice What a deployment fixes for good, in the code of each contract that shares the storage.
abstract contract Terms is ILedger {
    uint256 internal constant BPS = 10_000;

    IERC20 internal immutable TOKEN;
    address internal immutable ADJUDICATOR;
    address internal immutable PROVER;
    uint32 internal immutable SEAL_WINDOW;
    uint32 internal immutable CLAIM_WINDOW;
    uint32 internal immutable DISPUTE_WINDOW;
    uint32 internal immutable OPENING_WINDOW;
    uint32 internal immutable UNBONDING;
    uint32 internal immutable UNLOCK_DELAY;
    uint32 internal immutable KEY_GRACE;
    uint32 internal immutable JOB_WINDOW;
    uint32 internal immutable KAPPA_BPS;
    uint16 internal immutable FORCED_EVERY;
    uint16 internal immutable RESERVE_BPS;
    uint16 internal immutable INFERENCER_BPS;
    uint16 internal immutable COMMITTEE_BPS;
    uint16 internal immutable SCHEDULER_BPS;
    uint96 internal immutable CALLER_FEE;
    uint96 internal immutable CLAIM_BOND;
    uint96 internal immutable CHALLENGE_BOND;
    uint96 internal immutable ANSWER_FEE;
    uint96 internal immutable REVERIFY_BOND;

    constructor(Config memory terms) {
        TOKEN = IERC20(terms.token);
        ADJUDICATOR = terms.adjudicator;
        PROVER = terms.prover;
        SEAL_WINDOW = terms.sealWindow;
        CLAIM_WINDOW = terms.claimWindow;
        DISPUTE_WINDOW = terms.disputeWindow;
        OPENING_WINDOW = terms.openingWindow;
        UNBONDING = terms.unbonding;
        UNLOCK_DELAY = terms.unlockDelay;
        KEY_GRACE = terms.keyGrace;
        JOB_WINDOW = terms.jobWindow;
        KAPPA_BPS = terms.kappaBps;
        FORCED_EVERY = terms.forcedEvery;
        RESERVE_BPS = terms.reserveBps;
        INFERENCER_BPS = terms.inferencerBps;
        COMMITTEE_BPS = terms.committeeBps;
        SCHEDULER_BPS = terms.schedulerBps;
        CALLER_FEE = terms.callerFee;
        CLAIM_BOND = terms.claimBond;
        CHALLENGE_BOND = terms.challengeBond;
        ANSWER_FEE = terms.answerFee;
        REVERIFY_BOND = terms.reverifyBond;
    }

    /// @dev `value` basis points of `amount`, rounded down: what is paid.
    function _share(uint256 amount, uint256 value) internal pure returns (uint256) {
        return amount * value / BPS;
    }

    /// @dev `value` basis points of `amount`, rounded up: what is demanded.
    function _demand(uint256 amount, uint256 value) internal pure returns (uint256) {
        return Math.ceilDiv(amount * value, BPS);
    }

    /// @dev A timestamp that fits: both terms are far below 2^39.
    function _from(uint256 window) internal view returns (uint40) {
        return uint40(block.timestamp + window);
    }
}
