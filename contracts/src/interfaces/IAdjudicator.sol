// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {
    Checked,
    Claiming,
    ItemLeaf,
    JobId,
    ModelId,
    ModelSpec,
    Opening,
    Outcome,
    PairStatistics,
    Posting,
    Sealing
} from "./Types.sol";

/// @notice What a public round ends in.
/// @param lost bit p: party p did not open what it had to, or opened what is not finite.
/// @param paid bit k-1: member k is paid.
struct Verdict {
    Outcome outcome;
    uint8 reason;
    uint8 lost;
    uint8 paid;
}

/// @title The evidence of public rounds and what follows from it
/// @notice VeriLLM keeps the money, this contract the openings: it checks them, adds up the distances and names
/// the outcome. A contract of its own so that a fault in the arithmetic cannot reach the accounts, and so that
/// both stay under the code size limit without linking.
/// @dev A round belongs to the network that opened it: what a stranger opens, nobody else reads. It is found by
/// the job's record, which commits to every value that callers bring.
interface IAdjudicator {
    /// @notice The lengths of a checked request are fixed.
    event Revealed(JobId indexed jobId, uint16 checkedIndex, uint32 promptTokens, uint32 newTokens);
    /// @notice A party opened a position.
    event PositionServed(
        JobId indexed jobId, uint8 indexed party, uint16 checkedIndex, uint16 positionIndex
    );
    /// @notice A verifier drops out: its item is not prompt‖output.
    event ItemMismatched(JobId indexed jobId, uint8 indexed party, uint16 checkedIndex);
    /// @notice The distance of a pair at a position was added.
    event PairCompared(
        JobId indexed jobId, uint8 partyA, uint8 partyB, uint16 checkedIndex, uint16 positionIndex
    );

    error ProfileOutOfBounds(bytes32 field);
    error SpecNotCanonical();
    error SpecMismatch(ModelId expected, ModelId actual);
    error RoundUnknown(bytes32 record);
    error DeadlinePassed(uint256 deadline);
    error DeadlineNotReached(uint256 deadline);
    error OpeningInvalid(uint256 party, bytes32 fact);
    error PartiesNotAscending(uint256 party);
    error CheckedOutOfBounds(uint256 index, uint256 count);
    error PositionOutOfBounds(uint256 index, uint256 count);
    error AlreadyRevealed(uint256 checkedIndex);
    error NotRevealed(uint256 checkedIndex);
    error NotCompared(uint256 partyA, uint256 partyB);

    /// @notice Refuses a model outside the bounds, or one not encoded as `abi.encode(spec)`; remembers what its
    /// verdicts need and returns what its jobs need.
    function registerModel(bytes calldata encoded)
        external
        returns (
            ModelId modelId,
            uint96 seatStake,
            uint8 committee,
            uint32 vocabulary,
            uint32 context
        );

    /// @notice Opens a round of the caller: lengths until `revealBy`, openings until `openBy`, comparisons until `compareBy`.
    function open(JobId jobId, bytes32 record, uint40 revealBy, uint40 openBy, uint40 compareBy)
        external;

    /// @notice Fixes prompt and output length of a checked request from the inferencer's item leaf; anyone may.
    function reveal(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint16 checkedIndex,
        ItemLeaf calldata leaf,
        bytes32[] calldata itemPath
    ) external;

    /// @notice Puts one party's opening of one challenged position into calldata; anyone may, for anyone.
    /// @dev An item that is not prompt‖output at all is marked from its leaf alone.
    function serve(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Checked calldata checked,
        uint16 positionIndex,
        Opening calldata opening
    ) external;

    /// @notice Compares the openings of several parties, ascending, of one position; counts as serving them.
    function compare(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Checked calldata checked,
        uint16 positionIndex,
        Opening[] calldata openings
    ) external;

    /// @notice The verdict of the caller's round; reverts as long as somebody may still add to it.
    /// @dev `requests` of the job, `size` of the committee.
    function verdict(bytes32 record, ModelId modelId, uint256 requests, uint256 size)
        external
        view
        returns (Verdict memory);

    /// @notice How parties beyond the `size` that decide stand to the members in `clique`, bit k being party
    /// size+1+k, up to party `total`; reverts as long as somebody may still add to it.
    /// @dev Near: agrees with one of them. Strange: agrees with none, even at the slash tier, or did not open, or
    /// opened what is not finite. Who runs another text, or was not compared with all, is neither. An empty clique
    /// judges no states: near is who opened. Nobody is strange before the time to open is over, whoever opened for
    /// it: a party whose scheduler gave it another prompt has honest states that nobody else has, and until then it can
    /// show its task (IProver).
    function witnesses(
        bytes32 record,
        ModelId modelId,
        uint256 requests,
        uint256 size,
        uint256 total,
        uint8 clique
    ) external view returns (uint8 near, uint8 strange);

    /// @notice The requests that a draw of a job checks, in drawn order.
    function checkedOf(ModelId modelId, uint256 requests, bytes32 draw)
        external
        view
        returns (uint16[] memory);

    /// @notice The committee that `seal` will demand, and the checked requests; for schedulers and auditors.
    function drawOf(address network, Posting calldata posting, bytes32 secret, bytes32 beacon)
        external
        view
        returns (uint32[] memory seats, address[] memory owners, uint16[] memory checked);

    /// @notice Where a round of `network` stands; bit p of a mask and entry p of `served` are party p's.
    function roundOf(address network, bytes32 record)
        external
        view
        returns (
            JobId jobId,
            uint8 revealed,
            uint16 positions,
            uint16 nonFinite,
            uint16 mismatched,
            uint16[16] memory served
        );

    /// @notice The sums of a pair of parties, `partyA < partyB`.
    function pairOf(address network, bytes32 record, uint256 partyA, uint256 partyB)
        external
        view
        returns (PairStatistics memory);

    /// @notice The checked positions of a request.
    function positionsOf(
        bytes32 sealedRecord,
        bytes32 beacon,
        uint16 request,
        uint32 promptTokens,
        uint32 newTokens,
        uint16 wanted
    ) external pure returns (uint32[] memory);
}
