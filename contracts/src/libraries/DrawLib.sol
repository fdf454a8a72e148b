// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

/// @notice What the beacons decide: seats, checked requests, positions (docs/protocol.md §6).
library DrawLib {
    /// @notice Slots that a draw looks at before it gives up; bounds the gas of `seal`.
    uint256 internal constant MAX_STEPS = 256;
    bytes32 internal constant APPEAL = keccak256("VeriLLM appeal");

    function draw(bytes32 secret, bytes32 commitment, bytes32 beacon)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(secret, commitment, beacon));
    }

    /// @notice The draw of a re-verification's committee, apart from every other draw of the job.
    function appealDraw(bytes32 jobId, bytes32 beacon) internal pure returns (bytes32) {
        return keccak256(abi.encode(APPEAL, jobId, beacon));
    }

    /// @notice Whether the draw demands a public round, as it does for one job in `every` (0: none).
    function isForced(bytes32 seed, uint256 every) internal pure returns (bool) {
        return every != 0 && uint256(keccak256(abi.encode(seed, uint256(3)))) % every == 0;
    }

    /// @notice The slot that step `j` of a draw of seats looks at.
    function slot(bytes32 seed, uint256 j, uint256 slots) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed, uint256(1), j))) % slots;
    }

    /// @notice Whether a seat takes part in the draw of a job posted at `time`: joined strictly before, and not
    /// gone before; who leaves in post's own block cannot know the draw.
    function isEligible(address owner, uint256 activeFrom, uint256 leftAt, uint256 time)
        internal
        pure
        returns (bool)
    {
        return owner != address(0) && activeFrom < time && (leftAt == 0 || leftAt >= time);
    }

    /// @notice Whether `owner` is among the first `found` of `owners`.
    function isDrawn(address[] memory owners, uint256 found, address owner)
        internal
        pure
        returns (bool drawn)
    {
        for (uint256 i = 0; i < found; ++i) {
            drawn = drawn || owners[i] == owner;
        }
    }

    /// @notice The requests to check, in drawn order; all of them where no more than `wanted` exist.
    function checkedRequests(bytes32 seed, uint256 requests, uint256 wanted)
        internal
        pure
        returns (uint16[] memory checked)
    {
        if (requests <= wanted) {
            checked = new uint16[](requests);
            // At most 4096 requests, so an index fits.
            for (uint256 i = 0; i < requests; ++i) {
                checked[i] = uint16(i);
            }
            return checked;
        }
        checked = new uint16[](wanted);
        uint256 found = 0;
        for (uint256 j = 0; found < wanted; ++j) {
            uint256 request = uint256(keccak256(abi.encode(seed, uint256(2), j))) % requests;
            bool repeated = false;
            for (uint256 i = 0; i < found; ++i) {
                repeated = repeated || checked[i] == request;
            }
            if (!repeated) checked[found++] = uint16(request);
        }
    }

    /// @notice The seed of the positions: fixed by all that was sealed and the hash of seal's own block.
    function positionSeed(bytes32 sealedRecord, bytes32 beacon) internal pure returns (bytes32) {
        return keccak256(abi.encode(sealedRecord, beacon));
    }

    /// @notice How many positions of a request are checked.
    function positionCount(uint256 promptTokens, uint256 newTokens, uint256 wanted)
        internal
        pure
        returns (uint256)
    {
        uint256 last = promptTokens + newTokens - 2; // of the positions 0..P+N-2; 0 is never checked
        return last <= wanted ? last : wanted;
    }

    /// @notice The checked positions of `request`: the last one first, where there is a choice.
    /// @dev Lengths are those of the inferencer, each at least 1, their sum below 2^32.
    function positions(
        bytes32 seed,
        uint256 request,
        uint256 promptTokens,
        uint256 newTokens,
        uint256 wanted
    ) internal pure returns (uint32[] memory drawn) {
        uint256 last = promptTokens + newTokens - 2;
        if (last <= wanted) {
            drawn = new uint32[](last);
            for (uint256 i = 0; i < last; ++i) {
                drawn[i] = uint32(i + 1);
            }
            return drawn;
        }
        drawn = new uint32[](wanted);
        drawn[0] = uint32(last);
        uint256 found = 1;
        for (uint256 j = 0; found < wanted; ++j) {
            uint256 position = 1 + uint256(keccak256(abi.encode(seed, request, j))) % (last - 1);
            bool repeated = false;
            for (uint256 i = 0; i < found; ++i) {
                repeated = repeated || drawn[i] == position;
            }
            if (!repeated) drawn[found++] = uint32(position);
        }
    }
}
