// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {
    Asked,
    Claiming,
    Entry,
    Inner,
    Item,
    ItemLeaf,
    Job,
    JobId,
    ModelId,
    ModelSpec,
    Piece,
    Posting,
    Receipt,
    Sealing,
    Task
} from "./Types.sol";

/// @notice A party's task with one of its items, under what the party committed to.
struct Given {
    Inner inner;
    Task task;
    uint32 index;
    Item item;
}

/// @notice What a party made of that item.
struct Made {
    ItemLeaf leaf;
    bytes32[] path;
}

/// @notice The posted output of a request: its tokens, and their leaf's way to the outputs root.
struct Output {
    bytes tokens;
    bytes32[] path;
}

/// @notice Token `at` of a verifier's prompt: by its task, and by the request where it is of the request's prompt.
struct Told {
    uint32 at;
    Piece given;
    Piece asked;
}

/// @notice A row of the language-model head, as bf16 bits, under the model's head root.
struct Row {
    bytes bits;
    bytes32[] path;
}

/// @notice The chosen token's row and a better entry's.
struct Rival {
    uint32 id;
    Row token;
    Row rival;
}

/// @notice How a rival stands to the token that was chosen; ppm of a logit.
/// @param ahead its logit less the token's, floor.
/// @param margin its score less the token's, floor.
/// @param rounding at least what float32 can have rounded of it, in whatever order it added.
struct Margin {
    int256 ahead;
    int256 margin;
    uint256 rounding;
}

/// @notice A committee member's state at the position in question.
struct Witness {
    uint8 party;
    Given given;
    Made made;
    Entry entry;
    bytes finalState;
}

/// @title What proofs ask of a network
/// @notice Who they call, and what it answers.
/// @dev A part of IVeriLLM: a proof needs no more.
interface IProvable {
    /// @notice The id of a job: its EIP-712 digest there.
    function jobIdOf(Job calldata job) external view returns (JobId);
    /// @notice Whom a key acts for: its operator, or itself.
    function operatorOf(address hotKey) external view returns (address operator);
    /// @notice Punishes a party for what a proof showed: 0 the inferencer, 1..m a member, 255 the scheduler.
    function convict(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party,
        uint8 reason,
        address finder
    ) external;
    /// @notice Speaks against a claim that a proof on the states of a committee majority contradicts.
    function overrule(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        address finder
    ) external;
}

/// @title Objective proofs: what one call shows without a committee
/// @notice Each function checks all that it is given, then has the network convict or overrule; the caller is the
/// finder. Without storage and without money: who trusts the network need trust no more than this arithmetic.
/// @dev Whom a proof convicts rests on one rule: **a party answers for its own signed words alone**. A worker
/// signed its commitment, with the task's hash in it, before anything was posted: it answers for what its trace,
/// lengths and output are to *its task*. The scheduler signed the task and checked the worker's task hash, leaves and
/// output before it posted or sealed: it answers for what tasks are to the *job's requests*, for the outputs that it
/// posts, and for its receipts. So no worker can be framed by a false task or a false output, and no scheduler
/// by a worker's trace, which it has not seen when it seals. That the k = 0 of a seal is what was
/// posted needs no proof: `seal` rebuilds it.
/// The network checks posting, sealing and claiming against its record, whether it is not too late, and who is
/// at fault already (IRecourse).
interface IProver {
    error ProofInvalid(bytes32 fact);
    error NothingDiffers();
    error SpecMismatch(ModelId expected, ModelId actual);
    error NoTokenProof(ModelId modelId);
    error NotFinite();
    error ProductTooLarge();
    error NotARival(int256 ahead, uint256 required);
    error MarginWithin(int256 margin, uint256 allowed);
    error TooFewMembers(uint256 given, uint256 required);
    error PartiesNotAscending(uint256 party);
    error SignatureInvalid(address expected);

    // ── Against a worker ────────────────────────────────────────────────────────────────────────

    /// @notice A party's items are not those of its task: another number of them, another order, another
    /// prompt length, no new token, or more of them than were asked for.
    /// @dev Where the numbers of items differ, nothing of `given.item` and `made` is looked at.
    function lengthsDiffer(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party,
        Given calldata given,
        Made calldata made
    ) external;

    /// @notice A party took a task that no worker can run: an item with sampling parameters out of bounds, without a
    /// prompt or a new token, longer than the model's context, or with a token `at` that the model does not have.
    /// @dev Client and scheduler signed it too, and honest ones refuse it as honest workers do. Why the worker: its
    /// commitment is its own word to this task, so nobody honest can be convicted, and its fault ends the job as a slash
    /// that pays the client back. Where only the request is out of bounds and the task is not, that is the
    /// scheduler's fault alone: `taskDiffers`. Where the item's own fields show it, nothing of `piece` is looked at.
    function outOfBounds(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        uint8 party,
        Given calldata given,
        uint32 at,
        Piece calldata piece
    ) external;

    /// @notice A party's trace runs over another prompt than its task's: token `at` differs.
    /// @dev `entry` is position `at`, or the one before, which names `at` as its next.
    function traceDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party,
        Given calldata given,
        Made calldata made,
        uint32 at,
        Piece calldata piece,
        Entry calldata entry
    ) external;

    /// @notice The inferencer's own output and its own item differ: in length, or from its trace at `entry`.
    /// @dev `output` are all new tokens, u32 big-endian each. Where lengths differ, nothing of `entry` is looked at.
    /// Without this proof a trace of other tokens than the output would make every verifier look mismatched.
    function outputDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint32 request,
        Made calldata made,
        bytes calldata output,
        Entry calldata entry
    ) external;

    /// @notice The inferencer's own output has a token that ends it before its last one, or one that the
    /// model does not have; `at` counts from the output's first token.
    function afterEnd(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Given calldata given,
        Made calldata made,
        bytes calldata output,
        uint32 at
    ) external;

    /// @notice By the inferencer's own state, sampling and seed a rival beats the token that it chose, by more than
    /// the slash tier and all that float32 can round away.
    /// @dev Under truncation only a rival whose logit is clearly (τ) above the token's counts: whatever kept the
    /// token kept it, too. The state may be nudged so that a forged token wins: then this proof fails, and
    /// `marginCommittee` does not.
    function marginOwn(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Given calldata given,
        Made calldata made,
        Entry calldata entry,
        bytes calldata finalState,
        Rival calldata rival
    ) external;

    /// @notice By the states of a majority of the committee a rival beats a token of the inferencer's output by more
    /// than the refund tier: overrules the claim, open to re-verification.
    /// @dev A captured majority can nudge its states against an honest token, so this refunds and never slashes.
    /// `tokens` are prompt and output in whole: they prove that the members ran what the inferencer ran.
    function marginCommittee(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Given calldata given,
        Made calldata made,
        bytes calldata tokens,
        Witness[] calldata witnesses,
        Rival calldata rival
    ) external;

    // ── Against a scheduler ─────────────────────────────────────────────────────────────────────

    /// @notice A task is not the job's: for another worker, model or number of items, with less at stake than was
    /// locked, or with an item whose prompt, length, sampling, seed or (inferencer) new tokens are not the
    /// request's.
    /// @dev Where the task's own fields differ, nothing of the item is looked at. `output` counts for
    /// verifiers only: their prompt is the request's and all but the last token of the posted output.
    function taskDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        uint8 party,
        Given calldata given,
        Asked calldata asked,
        Output calldata output
    ) external;

    /// @notice A verifier's task has another token at `told.at` than the request or the posted output has.
    /// @dev Held to the posted output and not to the inferencer's trace: that is the worker's word, unseen by the
    /// scheduler when it sends tasks out.
    function promptDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        uint8 party,
        Given calldata given,
        Asked calldata asked,
        Told calldata told,
        Output calldata output
    ) external;

    /// @notice The scheduler posted a commitment in which a request has another prompt length than the client signed,
    /// no new token, or more than it asked for.
    /// @dev The scheduler's fault, as with outputs, and provable by the client alone: no task is needed, which two in
    /// league would not show. Else they could make every verifier look mismatched, and end inconclusive.
    function leafDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint32 request,
        Made calldata made,
        Asked calldata asked
    ) external;

    /// @notice The posted outputs hold another hash for a request than the inferencer committed to.
    /// @dev The scheduler's fault: it had every leaf of the commitment before it posted.
    function outputsDiffer(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint32 request,
        Made calldata made,
        bytes32 outputHash,
        bytes32[] calldata path
    ) external;

    /// @notice The scheduler signed a receipt for another output than the posted one, `outputHash`.
    /// @dev Its own address signs at any time, a hot key until its grace has ended.
    function receiptDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Receipt calldata receipt,
        bytes calldata signature,
        bytes32 outputHash,
        bytes32[] calldata path
    ) external;

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @notice How entry `rival` stands to `token` by a final state and both head rows, bf16 bits of equal length.
    function marginOf(
        bytes calldata finalState,
        bytes calldata tokenRow,
        bytes calldata rivalRow,
        bytes32 seed,
        uint32 position,
        uint32 token,
        uint32 rival,
        uint32 temperature
    ) external pure returns (Margin memory);
}
