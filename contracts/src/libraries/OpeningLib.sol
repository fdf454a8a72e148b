// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../interfaces/IAdjudicator.sol";
import {ItemLeaf, ModelSpec, Opening, Sealing} from "../interfaces/Types.sol";
import {MerkleLib} from "./MerkleLib.sol";

/// @notice Whether an opening lies under what its party committed to (docs/protocol.md §2, §5).
library OpeningLib {
    /// @notice Where an opening has to lie, by the draw.
    struct Place {
        uint16 checkedIndex;
        uint16 checkedCount;
        uint16 positionIndex;
        uint32 request;
        uint32 position;
        uint32 promptTokens;
        uint32 newTokens;
    }

    /// @notice Checks an opening down to its states; true if its item is not prompt‖output at all, which its
    /// commitment alone shows and which makes the position meaningless.
    function check(
        Opening calldata opening,
        Place memory place,
        Sealing calldata sealing,
        ModelSpec calldata spec
    ) internal pure returns (bool mismatched) {
        uint256 party = opening.party;
        _require(party <= sealing.committee.length, party, "party");
        bytes32 inner =
            party == 0 ? keccak256(abi.encode(sealing.inner)) : sealing.committee[party - 1].inner;
        _require(keccak256(abi.encode(opening.inner)) == inner, party, "inner");
        if (party != 0 && opening.inner.items != place.checkedCount) return true;
        uint256 index = party == 0 ? place.request : place.checkedIndex;
        _require(
            opening.leaf.item == index
                && MerkleLib.verify(
                    opening.inner.itemsRoot,
                    itemLeaf(opening.leaf),
                    index,
                    opening.inner.items,
                    opening.itemPath
                ),
            party,
            "item"
        );
        uint256 length = uint256(place.promptTokens) + place.newTokens - 1;
        if (party != 0 && opening.leaf.promptTokens != length) return true;
        _checkStates(opening, place.position, spec);
    }

    function itemLeaf(ItemLeaf calldata leaf) internal pure returns (bytes32) {
        return MerkleLib.leaf(
            MerkleLib.ITEMS,
            abi.encodePacked(
                leaf.item, leaf.promptTokens, leaf.newTokens, leaf.traceRoot, leaf.outputHash
            )
        );
    }

    function traceLeaf(Opening calldata opening) internal pure returns (bytes32) {
        return MerkleLib.leaf(
            MerkleLib.TRACE,
            abi.encodePacked(
                opening.inner.taskHash,
                opening.leaf.item,
                opening.position,
                opening.token,
                opening.next,
                sha256(opening.slices),
                sha256(opening.finalState)
            )
        );
    }

    function _checkStates(Opening calldata opening, uint256 position, ModelSpec calldata spec)
        private
        pure
    {
        uint256 party = opening.party;
        _require(opening.position == position, party, "position");
        uint256 slices = spec.committedLayers.length * spec.sliceDims * 2;
        _require(opening.slices.length == slices, party, "slices");
        _require(opening.finalState.length == uint256(spec.hidden) * 2, party, "finalState");
        // Lengths come from outside: zero of both would make the count wrap.
        uint256 tokens = uint256(opening.leaf.promptTokens) + opening.leaf.newTokens;
        _require(
            tokens != 0
                && MerkleLib.verify(
                    opening.leaf.traceRoot, traceLeaf(opening), position, tokens - 1, opening.path
                ),
            party,
            "trace"
        );
    }

    function _require(bool holds, uint256 party, bytes32 fact) private pure {
        require(holds, IAdjudicator.OpeningInvalid(party, fact));
    }
}
