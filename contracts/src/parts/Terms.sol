// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Config, IVeriLLM} from "../interfaces/IVeriLLM.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice What a deployment fixes for good, refused where it is unsafe.
abstract contract Terms is IVeriLLM {
    uint256 internal constant BPS = 10_000;
    /// @dev Keeps every sum of windows far below what a uint40 timestamp leaves.
    uint256 internal constant MAX_WINDOW = 365 days;

    IERC20 internal immutable TOKEN;
    address internal immutable ADJUDICATOR;
    uint32 internal immutable SEAL_WINDOW;
    uint32 internal immutable CLAIM_WINDOW;
    uint32 internal immutable DISPUTE_WINDOW;
    uint32 internal immutable OPENING_WINDOW;
    uint32 internal immutable UNBONDING;
    uint32 internal immutable UNLOCK_DELAY;
    uint32 internal immutable KEY_GRACE;
    uint32 internal immutable JOB_WINDOW;
    uint32 internal immutable KAPPA_BPS;
    uint16 internal immutable RESERVE_BPS;
    uint16 internal immutable INFERENCER_BPS;
    uint16 internal immutable COMMITTEE_BPS;
    uint16 internal immutable SCHEDULER_BPS;
    uint96 internal immutable CALLER_FEE;
    uint96 internal immutable CLAIM_BOND;
    uint96 internal immutable CHALLENGE_BOND;

    bytes private _config;

    constructor(Config memory terms) {
        _requireSafe(terms);
        _config = abi.encode(terms);
        TOKEN = IERC20(terms.token);
        ADJUDICATOR = terms.adjudicator;
        SEAL_WINDOW = terms.sealWindow;
        CLAIM_WINDOW = terms.claimWindow;
        DISPUTE_WINDOW = terms.disputeWindow;
        OPENING_WINDOW = terms.openingWindow;
        UNBONDING = terms.unbonding;
        UNLOCK_DELAY = terms.unlockDelay;
        KEY_GRACE = terms.keyGrace;
        JOB_WINDOW = terms.jobWindow;
        KAPPA_BPS = terms.kappaBps;
        RESERVE_BPS = terms.reserveBps;
        INFERENCER_BPS = terms.inferencerBps;
        COMMITTEE_BPS = terms.committeeBps;
        SCHEDULER_BPS = terms.schedulerBps;
        CALLER_FEE = terms.callerFee;
        CLAIM_BOND = terms.claimBond;
        CHALLENGE_BOND = terms.challengeBond;
    }

    /// @inheritdoc IVeriLLM
    /// @dev Kept as it is returned: a getter from the immutables would take a twentieth of the code size limit.
    function config() external view returns (Config memory) {
        bytes memory encoded = _config;
        assembly ("memory-safe") {
            return(add(encoded, 32), mload(encoded))
        }
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

    function _requireSafe(Config memory terms) private view {
        require(terms.token.code.length != 0, ConfigUnsafe("token"));
        require(terms.adjudicator.code.length != 0, ConfigUnsafe("adjudicator"));
        _requireWindow(terms.sealWindow, "sealWindow");
        _requireWindow(terms.claimWindow, "claimWindow");
        _requireWindow(terms.disputeWindow, "disputeWindow");
        _requireWindow(terms.openingWindow, "openingWindow");
        _requireWindow(terms.unbonding, "unbonding");
        _requireWindow(terms.unlockDelay, "unlockDelay");
        _requireWindow(terms.keyGrace, "keyGrace");
        _requireWindow(terms.jobWindow, "jobWindow");
        // A seat outlives the longest path of a job that could still draw it.
        uint256 longest = uint256(terms.jobWindow) + terms.sealWindow + terms.claimWindow
            + terms.disputeWindow + 3 * uint256(terms.openingWindow);
        require(terms.unbonding > longest, ConfigUnsafe("unbonding"));
        // A deposit stays for as long as a job signed against it may still be posted.
        require(terms.unlockDelay >= terms.jobWindow, ConfigUnsafe("unlockDelay"));
        // Exposure at least the fee: then the committee and the finder can be paid from it.
        require(terms.kappaBps >= BPS, ConfigUnsafe("kappaBps"));
        require(terms.reserveBps < BPS, ConfigUnsafe("reserveBps"));
        uint256 shares = uint256(terms.inferencerBps) + terms.committeeBps + terms.schedulerBps;
        require(shares == BPS, ConfigUnsafe("shares"));
        require(terms.inferencerBps != 0, ConfigUnsafe("inferencerBps"));
        require(terms.committeeBps != 0, ConfigUnsafe("committeeBps"));
        require(terms.claimBond != 0, ConfigUnsafe("claimBond"));
        require(terms.challengeBond != 0, ConfigUnsafe("challengeBond"));
    }

    function _requireWindow(uint32 window, bytes32 field) private pure {
        require(window != 0 && window <= MAX_WINDOW, ConfigUnsafe(field));
    }
}
