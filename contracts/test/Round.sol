// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../src/interfaces/IAdjudicator.sol";
import "../src/interfaces/ILedger.sol";
import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {Network} from "./Network.sol";
import {Trees} from "./Trees.sol";

/// @notice A network whose parties hold synthetic states, made anew from a party's kind whenever they are opened.
abstract contract Round is Network {
    /// @dev What a party's states are to the true ones.
    enum Kind {
        Honest, // within rounding
        Coarse, // between the tiers: like int8 weights
        Strange, // another model
        Captured, // yet another one, the same for all who run it
        Infinite // one value is not finite
    }

    mapping(address owner => Kind) internal kinds;
    /// @dev Added to a party's prompt length, and to all of its tokens.
    mapping(address owner => uint32) internal longer;
    mapping(address owner => uint32) internal otherTokens;
    uint256 internal constant PROMPT = 6;
    uint256 internal constant OUTPUT = 5;

    // ── Commitments ─────────────────────────────────────────────────────────────────────────────

    function _party(address owner, uint256 items, uint256 number)
        internal
        view
        virtual
        override
        returns (Party memory party)
    {
        party = super._party(owner, items, number);
        party.leaves = new ItemLeaf[](items);
        party.itemHashes = new bytes32[](items);
        for (uint256 i = 0; i < items; ++i) {
            ItemLeaf memory leaf = party.leaves[i];
            leaf.item = uint32(i);
            leaf.promptTokens = uint32(number == 0 ? PROMPT : PROMPT + OUTPUT - 1) + longer[owner];
            leaf.newTokens = number == 0 ? uint32(OUTPUT) : 2;
            leaf.outputHash = keccak256(abi.encode("output", owner, i));
        }
        _resetRoots(party);
    }

    function _resetRoots(Party memory party) internal view {
        for (uint256 i = 0; i < party.leaves.length; ++i) {
            ItemLeaf memory leaf = party.leaves[i];
            leaf.traceRoot = Trees.root(_trace(party, i));
            party.itemHashes[i] = sha256(
                abi.encodePacked(
                    bytes1(0x00),
                    uint8(2),
                    leaf.item,
                    leaf.promptTokens,
                    leaf.newTokens,
                    leaf.traceRoot,
                    leaf.outputHash
                )
            );
        }
        if (party.leaves.length != 0) party.inner.itemsRoot = Trees.root(party.itemHashes);
    }

    function _trace(Party memory party, uint256 item)
        internal
        view
        returns (bytes32[] memory leaves)
    {
        ItemLeaf memory leaf = party.leaves[item];
        leaves = new bytes32[](leaf.promptTokens + leaf.newTokens - 1);
        for (uint256 position = 0; position < leaves.length; ++position) {
            leaves[position] = sha256(
                abi.encodePacked(
                    bytes1(0x00),
                    uint8(1),
                    party.inner.taskHash,
                    leaf.item,
                    uint32(position),
                    _token(party, position),
                    _token(party, position + 1),
                    sha256(_slices(party, position)),
                    sha256(_finalState(party, position))
                )
            );
        }
    }

    function _token(Party memory party, uint256 position) internal view returns (uint32) {
        return uint32(100 + position) + otherTokens[party.owner];
    }

    function _slices(Party memory party, uint256 position) internal view returns (bytes memory) {
        ModelSpec memory spec = _spec();
        return _states(party, position, spec.committedLayers.length * spec.sliceDims * 2, "slices");
    }

    function _finalState(Party memory party, uint256 position)
        internal
        view
        returns (bytes memory)
    {
        return _states(party, position, _spec().hidden * 2, "final");
    }

    /// @dev `size` bytes of bf16 values around 1 to 4; every party has its own rounding noise.
    function _states(Party memory party, uint256 position, uint256 size, string memory what)
        internal
        view
        returns (bytes memory states)
    {
        Kind kind = kinds[party.owner];
        bytes32 stream = keccak256(abi.encode(what, position));
        if (kind == Kind.Strange) stream = keccak256(abi.encode(stream, party.owner));
        if (kind == Kind.Captured) stream = keccak256(abi.encode(stream, "captured"));
        bytes32 noise = keccak256(abi.encode(stream, party.owner, "noise"));
        uint256 words = size / 32;
        bytes32[] memory out = new bytes32[](words);
        for (uint256 w = 0; w < words; ++w) {
            out[w] = _word(
                uint256(keccak256(abi.encode(stream, w))),
                uint256(keccak256(abi.encode(noise, w))),
                kind == Kind.Coarse ? 8 : 2
            );
        }
        if (kind == Kind.Infinite && position == PROMPT + OUTPUT - 2) {
            out[0] = bytes32(uint256(out[0]) | (0x7f80 << 64));
        }
        return abi.encodePacked(out);
    }

    /// @dev Sixteen values; `noise` adds up to `spread - 1` steps of the mantissa.
    function _word(uint256 random, uint256 noise, uint256 spread) private pure returns (bytes32) {
        uint256 word = 0;
        for (uint256 lane = 0; lane < 16; ++lane) {
            uint256 bits = (random >> (16 * lane)) & 0xffff;
            uint256 step = ((noise >> (16 * lane)) & 0xffff) % spread;
            uint256 mantissa = (bits & 0x3f) + 32 + step; // below 128
            uint256 exponent = 127 + ((bits >> 7) & 1);
            word |= ((bits & 0x8000) | (exponent << 7) | mantissa) << (16 * lane);
        }
        return bytes32(word);
    }

    // ── Openings ────────────────────────────────────────────────────────────────────────────────

    function _checked(Case memory c) internal view returns (uint16[] memory checked) {
        (,, checked) = adjudicator.drawOf(address(network), c.posting, SECRET, c.sealing.beacon);
    }

    function _positions(Case memory c, uint256 request) internal view returns (uint32[] memory) {
        bytes32 posted = keccak256(abi.encode(c.posting));
        return adjudicator.positionsOf(
            keccak256(abi.encode(posted, c.sealing)),
            c.claiming.beacon,
            uint16(request),
            uint32(PROMPT),
            uint32(OUTPUT),
            _spec().positions
        );
    }

    function _record(Case memory c) internal pure returns (bytes32) {
        bytes32 posted = keccak256(abi.encode(c.posting));
        bytes32 sealedRecord = keccak256(abi.encode(posted, c.sealing));
        return keccak256(abi.encode(sealedRecord, c.claiming));
    }

    function _opening(Case memory c, uint256 number, uint256 index, uint256 position)
        internal
        view
        returns (Opening memory opening)
    {
        Party memory party = c.parties[number];
        uint256 item = number == 0 ? _checked(c)[index] : index;
        opening.party = uint8(number);
        opening.inner = party.inner;
        opening.leaf = party.leaves[item];
        opening.itemPath = Trees.path(party.itemHashes, item);
        opening.position = uint32(position);
        opening.token = _token(party, position);
        opening.next = _token(party, position + 1);
        opening.slices = _slices(party, position);
        opening.finalState = _finalState(party, position);
        opening.path = Trees.path(_trace(party, item), position);
    }

    function _place(uint256 index) internal pure returns (Checked memory) {
        return Checked(uint16(index), uint32(PROMPT), uint32(OUTPUT));
    }

    function _reveal(Case memory c) internal {
        uint16[] memory checked = _checked(c);
        Party memory party = c.parties[0];
        for (uint256 i = 0; i < checked.length; ++i) {
            adjudicator.reveal(
                address(network),
                c.posting,
                c.sealing,
                c.claiming,
                uint16(i),
                party.leaves[checked[i]],
                Trees.path(party.itemHashes, checked[i])
            );
        }
    }

    /// @dev Compares all parties with a bit in `who` at every position.
    function _compareAll(Case memory c, uint256 who) internal {
        uint16[] memory checked = _checked(c);
        for (uint256 i = 0; i < checked.length; ++i) {
            uint32[] memory positions = _positions(c, checked[i]);
            for (uint256 p = 0; p < positions.length; ++p) {
                _compare(c, who, i, p, positions[p]);
            }
        }
    }

    function _compare(Case memory c, uint256 who, uint256 index, uint256 place, uint256 position)
        internal
    {
        uint256 count = 0;
        for (uint256 k = 0; k < c.parties.length; ++k) {
            count += (who >> k) & 1;
        }
        Opening[] memory openings = new Opening[](count);
        count = 0;
        for (uint256 k = 0; k < c.parties.length; ++k) {
            if ((who >> k) & 1 != 0) openings[count++] = _opening(c, k, index, position);
        }
        adjudicator.compare(
            address(network),
            c.posting,
            c.sealing,
            c.claiming,
            _spec(),
            _place(index),
            uint16(place),
            openings
        );
    }

    function _serve(Case memory c, uint256 number, uint256 index, uint256 place, uint256 position)
        internal
    {
        _serveOpening(c, index, place, _opening(c, number, index, position));
    }

    function _serveOpening(Case memory c, uint256 index, uint256 place, Opening memory opening)
        internal
    {
        adjudicator.serve(
            address(network),
            c.posting,
            c.sealing,
            c.claiming,
            _spec(),
            _place(index),
            uint16(place),
            opening
        );
    }

    function _adjudicate(Case memory c) internal returns (Outcome outcome, uint8 reason) {
        network.adjudicate(c.posting, c.sealing, c.claiming);
        return _settle(c);
    }

    function _settle(Case memory c) internal returns (Outcome outcome, uint8 reason) {
        (, uint40 settleAfter,) = network.jobState(c.id);
        vm.warp(settleAfter);
        vm.recordLogs();
        network.settle(c.posting, c.sealing, c.claiming);
        return abi.decode(_logged(ILedger.Finalized.selector), (Outcome, uint8));
    }
}
