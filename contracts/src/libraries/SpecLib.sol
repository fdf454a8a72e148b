// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../interfaces/IAdjudicator.sol";
import {CheckProfile, LayerProfile, ModelSpec} from "../interfaces/Types.sol";

/// @notice Bounds on what a model may ask for: a profile too loose accepts cheats, one too tight slashes the
/// honest, and sizes bound the gas of every call.
library SpecLib {
    uint256 internal constant PPM = 1_000_000;
    uint256 internal constant MAX_COMMITTEE = 7; // parties fit a byte, cliques are 2^m subsets
    uint256 internal constant MIN_POSITIONS = 4;
    uint256 internal constant MAX_POSITIONS = 64; // one bit map word holds four requests
    uint256 internal constant MAX_CHECKED = 16;
    uint256 internal constant MAX_LAYERS = 32; // committed ones
    uint256 internal constant MAX_HIDDEN = 16_384;
    uint256 internal constant MAX_CONTEXT = 1 << 24;
    int256 internal constant MAX_SCALE = 40;
    uint256 internal constant MAX_CAP = 500_000; // half the norm: unrelated states lie beyond
    uint256 internal constant MAX_MEAN = 2_400_000; // honest medians; no states' mean passes StatisticsLib.MOST_RATIO
    uint256 internal constant MAX_MARGIN = 10_000_000; // ten logits
    uint256 internal constant MAX_EPSILON = 100_000; // a tenth of the mass

    function requireSane(ModelSpec memory spec) internal pure {
        _require(spec.hidden != 0 && spec.hidden % 16 == 0, "hidden");
        _require(spec.hidden <= MAX_HIDDEN, "hidden");
        _require(spec.sliceDims != 0 && spec.sliceDims % 16 == 0, "sliceDims");
        _require(spec.sliceDims <= spec.hidden, "sliceDims");
        _require(spec.vocabulary != 0, "vocabulary");
        _require(spec.context > 1 && spec.context <= MAX_CONTEXT, "context");
        _require(spec.committee % 2 == 1 && spec.committee <= MAX_COMMITTEE, "committee");
        _require(_within(spec.checkedRequests, 1, MAX_CHECKED), "checkedRequests");
        _require(_within(spec.positions, MIN_POSITIONS, MAX_POSITIONS), "positions");
        _require(spec.seatStake != 0, "seatStake");
        _requireLayers(spec);
        _requireThresholds(spec.profile, uint256(spec.positions) * spec.checkedRequests);
        _requireMany(spec.profile, spec.positions);
        for (uint256 i = 0; i < spec.profile.layers.length; ++i) {
            _requireLayer(spec.profile.layers[i]);
        }
    }

    function _requireLayers(ModelSpec memory spec) private pure {
        uint256 count = spec.committedLayers.length;
        _require(_within(count, 1, MAX_LAYERS), "committedLayers");
        uint256 before = 0;
        for (uint256 i = 0; i < count; ++i) {
            uint256 layer = spec.committedLayers[i];
            _require(layer > before && layer <= spec.depth, "committedLayers");
            before = layer;
        }
        _require(spec.profile.layers.length == count + 1, "profile.layers");
    }

    function _requireThresholds(CheckProfile memory profile, uint256 checked) private pure {
        _require(_within(profile.meanRefund, PPM, MAX_MEAN), "meanRefund");
        _require(_within(profile.meanSlash, profile.meanRefund, MAX_MEAN), "meanSlash");
        _require(profile.overSlash <= checked / 2, "overSlash");
        _require(profile.overRefund <= profile.overSlash, "overRefund");
        _require(_within(profile.minPositions, 1, checked), "minPositions");
        _require(_within(profile.marginMaxSlash, 1, MAX_MARGIN), "marginMaxSlash");
        _require(_within(profile.marginMaxRefund, 1, profile.marginMaxSlash), "marginMaxRefund");
        _require(_within(profile.marginMean, 1, MAX_MARGIN), "marginMean");
        _require(profile.massEpsilon <= MAX_EPSILON, "massEpsilon");
        _require(profile.logitTau <= MAX_MARGIN, "logitTau");
    }

    /// @dev Never looser than for few positions; without a second pair its fields are zero, so that one profile has
    /// one encoding.
    function _requireMany(CheckProfile memory profile, uint256 positions) private pure {
        (uint256 refund, uint256 slash) = (profile.meanRefundMany, profile.meanSlashMany);
        if (profile.manyPositions == 0) {
            _require(refund == 0, "meanRefundMany");
            _require(slash == 0, "meanSlashMany");
            return;
        }
        _require(profile.manyPositions <= positions, "manyPositions");
        _require(_within(refund, PPM, profile.meanRefund), "meanRefundMany");
        _require(_within(slash, refund, profile.meanSlash), "meanSlashMany");
    }

    function _requireLayer(LayerProfile memory layer) private pure {
        _require(layer.scale >= -MAX_SCALE && layer.scale <= MAX_SCALE, "scale");
        for (uint256 zone = 0; zone < 3; ++zone) {
            _require(layer.med[zone] != 0 && layer.med[zone] <= layer.cap[zone], "med");
            _require(layer.cap[zone] <= MAX_CAP, "cap");
        }
    }

    function _within(uint256 value, uint256 least, uint256 most) private pure returns (bool) {
        return least <= value && value <= most;
    }

    function _require(bool sane, bytes32 field) private pure {
        require(sane, IAdjudicator.ProfileOutOfBounds(field));
    }
}
