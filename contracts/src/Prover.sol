// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {
    Given,
    IProvable,
    IProver,
    Made,
    Margin,
    Output,
    Rival,
    Row,
    Told,
    Witness
} from "./interfaces/IProver.sol";
import {
    Asked,
    Claiming,
    Entry,
    Inner,
    Item,
    JobId,
    ModelId,
    ModelSpec,
    Piece,
    Posting,
    Receipt,
    Sealing,
    Task
} from "./interfaces/Types.sol";
import {BoundsLib} from "./libraries/BoundsLib.sol";
import {DrawLib} from "./libraries/DrawLib.sol";
import {HashLib} from "./libraries/HashLib.sol";
import {MarginLib} from "./libraries/MarginLib.sol";
import {MerkleLib} from "./libraries/MerkleLib.sol";
import {OpeningLib} from "./libraries/OpeningLib.sol";
import {TaskLib} from "./libraries/TaskLib.sol";
import {VerdictLib} from "./libraries/VerdictLib.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";

/// @title Prover
/// @notice Objective proofs; see IProver.
/// @dev No storage, no money, no memory of what was proven: the network convicts each party once.
contract Prover is IProver {
    uint8 private constant SCHEDULER = 255;
    /// @dev What a head's scale is where a logit is exactly final state times row.
    uint256 private constant HEAD_SCALE_ONE = 1_000_000;
    bytes32 private constant DOMAIN_TYPEHASH = keccak256(
        "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    );

    // ── Against a worker ────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IProver
    function lengthsDiffer(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party,
        Given calldata given,
        Made calldata made
    ) external {
        _requireTask(sealing, party, given);
        if (given.inner.items == given.task.items.length) {
            _requireItem(given);
            _requireLeaf(given.inner, given.index, made);
            bool follows = made.leaf.item == given.index
                && made.leaf.promptTokens == given.item.length && made.leaf.newTokens != 0
                && made.leaf.newTokens <= given.item.maxNewTokens;
            require(!follows, NothingDiffers());
        }
        _convict(network, posting, sealing, claiming, party, VerdictLib.LENGTH);
    }

    /// @inheritdoc IProver
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
    ) external {
        _requireModel(posting, spec, given);
        _requireTask(sealing, party, given);
        _requireItem(given);
        Item calldata item = given.item;
        bytes32 fault = BoundsLib.fault(item.sampling, item.length, item.maxNewTokens, spec.context);
        if (fault == 0) {
            uint32 token = _piece(item.tokensRoot, item.length, at, piece);
            require(token >= spec.vocabulary, NothingDiffers());
        }
        _convict(network, posting, sealing, claiming, party, VerdictLib.OUT_OF_BOUNDS);
    }

    /// @inheritdoc IProver
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
    ) external {
        _requireTask(sealing, party, given);
        _requireItem(given);
        _requireLeaf(given.inner, given.index, made);
        uint32 asked = _piece(given.item.tokensRoot, given.item.length, at, piece);
        _requireEntry(given.inner.taskHash, made, entry);
        require(_tokenOf(entry, at) != asked, NothingDiffers());
        _convict(network, posting, sealing, claiming, party, VerdictLib.TRACE_DIFFERS);
    }

    /// @inheritdoc IProver
    function outputDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint32 request,
        Made calldata made,
        bytes calldata output,
        Entry calldata entry
    ) external {
        _requireLeaf(sealing.inner, request, made);
        _requireOwnOutput(network, posting, sealing, made, output);
        if (output.length == 4 * uint256(made.leaf.newTokens)) {
            _requireEntry(sealing.inner.taskHash, made, entry);
            uint256 first = made.leaf.promptTokens;
            // Either token of the entry may be the one that differs; what is no output is not compared.
            bool follows = _isOutput(output, first, entry.position, entry.token)
                && _isOutput(output, first, uint256(entry.position) + 1, entry.next);
            require(!follows, NothingDiffers());
        }
        _convict(network, posting, sealing, claiming, 0, VerdictLib.OUTPUT_MISMATCH);
    }

    /// @inheritdoc IProver
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
    ) external {
        _requireModel(posting, spec, given);
        _requireTask(sealing, 0, given);
        _requireLeaf(given.inner, given.index, made);
        _requireOwnOutput(network, posting, sealing, made, output);
        uint256 count = output.length / 4;
        _require(at < count, "at");
        uint32 token = TaskLib.token(output, at);
        uint8 reason = VerdictLib.OUTSIDE_NUCLEUS;
        if (token < spec.vocabulary) {
            require(at + 1 < count && _isEnd(spec, token), NothingDiffers());
            reason = VerdictLib.AFTER_END;
        }
        _convict(network, posting, sealing, claiming, 0, reason);
    }

    /// @inheritdoc IProver
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
    ) external {
        _requireModel(posting, spec, given);
        _requireTask(sealing, 0, given);
        _requireItem(given);
        _requireLeaf(given.inner, given.index, made);
        _requireEntry(given.inner.taskHash, made, entry);
        _require(uint256(entry.position) + 1 >= given.item.length, "position");
        _requireRows(spec, entry.next, rival);
        Margin memory found = _margin(spec, given.item, entry, finalState, entry.next, rival);
        uint256 allowed = spec.profile.marginMaxSlash + found.rounding;
        require(found.margin > int256(allowed), MarginWithin(found.margin, allowed));
        _convict(network, posting, sealing, claiming, 0, VerdictLib.MARGIN_MAX);
    }

    /// @inheritdoc IProver
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
    ) external {
        _requireMajority(sealing, witnesses);
        _requireModel(posting, spec, given);
        _requireTask(sealing, 0, given);
        _requireItem(given);
        _requireLeaf(given.inner, given.index, made);
        _requirePrompt(given.item, tokens);
        _requireOwnOutput(network, posting, sealing, made, tokens[4 * uint256(given.item.length):]);
        uint256 position = _chosenAt(given.item, tokens, witnesses[0]);
        _requireRows(spec, TaskLib.token(tokens, position + 1), rival);
        bytes32 root = TaskLib.tokensRoot(given.item.salt, tokens[:tokens.length - 4]);
        for (uint256 i = 0; i < witnesses.length; ++i) {
            _requireSameRun(witnesses[i], given.item.seed, root, tokens, position);
            _requireWitness(posting, sealing, witnesses[i]);
            _requireBeaten(
                spec, given.item, witnesses[i], TaskLib.token(tokens, position + 1), rival
            );
        }
        IProvable(network).overrule(posting, sealing, claiming, msg.sender);
    }

    // ── Against a scheduler ─────────────────────────────────────────────────────────────────────

    /// @inheritdoc IProver
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
    ) external {
        _requireSpec(posting, spec);
        _requireTask(sealing, party, given);
        if (_isOwnTask(network, posting, sealing, spec, party, given.task)) {
            _requireItem(given);
            uint32 request = _request(posting, sealing, spec, party, given.index);
            bytes32 seed =
                TaskLib.seed(sealing.secret, _requireAsked(posting, request, asked), request);
            bool follows = given.item.seed == seed
                && keccak256(abi.encode(given.item.sampling))
                    == keccak256(abi.encode(asked.sampling));
            if (party == 0) {
                follows = follows && given.item.tokensRoot == asked.tokensRoot
                    && given.item.length == asked.length
                    && given.item.maxNewTokens == asked.maxNewTokens;
            } else if (follows) {
                _requirePosted(network, posting, sealing, request, output);
                uint256 count = output.tokens.length / 4;
                follows = uint256(given.item.length) + 1 == asked.length + count;
            }
            require(!follows, NothingDiffers());
        }
        _convict(network, posting, sealing, claiming, SCHEDULER, VerdictLib.TASK_DIFFERS);
    }

    /// @inheritdoc IProver
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
    ) external {
        _require(party != 0, "party");
        _requireSpec(posting, spec);
        _requireTask(sealing, party, given);
        _requireItem(given);
        uint32 request = _request(posting, sealing, spec, party, given.index);
        _requireAsked(posting, request, asked);
        uint32 expected;
        if (told.at < asked.length) {
            expected = _piece(asked.tokensRoot, asked.length, told.at, told.asked);
        } else {
            _requirePosted(network, posting, sealing, request, output);
            uint256 offset = told.at - asked.length;
            _require(offset < output.tokens.length / 4, "at");
            expected = TaskLib.token(output.tokens, offset);
        }
        uint32 token = _piece(given.item.tokensRoot, given.item.length, told.at, told.given);
        require(token != expected, NothingDiffers());
        _convict(network, posting, sealing, claiming, SCHEDULER, VerdictLib.TASK_DIFFERS);
    }

    /// @inheritdoc IProver
    function leafDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint32 request,
        Made calldata made,
        Asked calldata asked
    ) external {
        _requireLeaf(sealing.inner, request, made);
        _requireAsked(posting, request, asked);
        bool follows = made.leaf.item == request && made.leaf.promptTokens == asked.length
            && made.leaf.newTokens != 0 && made.leaf.newTokens <= asked.maxNewTokens;
        require(!follows, NothingDiffers());
        _convict(network, posting, sealing, claiming, SCHEDULER, VerdictLib.LENGTH);
    }

    /// @inheritdoc IProver
    function outputsDiffer(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint32 request,
        Made calldata made,
        bytes32 outputHash,
        bytes32[] calldata path
    ) external {
        _requireLeaf(sealing.inner, request, made);
        _requireOutput(posting, request, outputHash, path);
        require(made.leaf.outputHash != outputHash, NothingDiffers());
        _convict(network, posting, sealing, claiming, SCHEDULER, VerdictLib.OUTPUT_MISMATCH);
    }

    /// @inheritdoc IProver
    function receiptDiffers(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Receipt calldata receipt,
        bytes calldata signature,
        bytes32 outputHash,
        bytes32[] calldata path
    ) external {
        JobId jobId = IProvable(network).jobIdOf(posting.job);
        _require(JobId.unwrap(receipt.jobId) == JobId.unwrap(jobId), "job");
        _requireSigned(network, posting.quote.scheduler, receipt, signature);
        _requireOutput(posting, receipt.request, outputHash, path);
        require(receipt.outputHash != outputHash, NothingDiffers());
        _convict(network, posting, sealing, claiming, SCHEDULER, VerdictLib.RECEIPT_DIFFERS);
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IProver
    function marginOf(
        bytes calldata finalState,
        bytes calldata tokenRow,
        bytes calldata rivalRow,
        bytes32 seed,
        uint32 position,
        uint32 token,
        uint32 rival,
        uint32 temperature
    ) external pure returns (Margin memory) {
        bool equal = finalState.length % 32 == 0 && tokenRow.length == finalState.length
            && rivalRow.length == finalState.length;
        _require(equal, "row");
        int256 gap = MarginLib.noise(seed, position, token, rival, temperature);
        return MarginLib.between(finalState, tokenRow, rivalRow, gap);
    }

    // ── What holds together ─────────────────────────────────────────────────────────────────────

    function _convict(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party,
        uint8 reason
    ) private {
        IProvable(network).convict(posting, sealing, claiming, party, reason, msg.sender);
    }

    function _require(bool holds, bytes32 fact) private pure {
        require(holds, ProofInvalid(fact));
    }

    function _requireSpec(Posting calldata posting, ModelSpec calldata spec) private pure {
        ModelId modelId = ModelId.wrap(keccak256(abi.encode(spec)));
        ModelId expected = posting.quote.modelId;
        require(
            ModelId.unwrap(modelId) == ModelId.unwrap(expected), SpecMismatch(expected, modelId)
        );
    }

    /// @dev What a worker did with another model's task is judged by no spec of the job's.
    function _requireModel(Posting calldata posting, ModelSpec calldata spec, Given calldata given)
        private
        pure
    {
        _requireSpec(posting, spec);
        _require(
            ModelId.unwrap(given.task.modelId) == ModelId.unwrap(posting.quote.modelId), "model"
        );
    }

    /// @dev The task is the one that the party committed to.
    function _requireTask(Sealing calldata sealing, uint256 party, Given calldata given)
        private
        pure
    {
        _require(party <= sealing.committee.length, "party");
        bytes32 inner =
            party == 0 ? keccak256(abi.encode(sealing.inner)) : sealing.committee[party - 1].inner;
        _require(keccak256(abi.encode(given.inner)) == inner, "inner");
        _require(TaskLib.hashTask(given.task) == given.inner.taskHash, "task");
    }

    function _requireItem(Given calldata given) private pure {
        bool included = given.index < given.task.items.length
            && given.task.items[given.index] == TaskLib.hashItem(given.item);
        _require(included, "item");
    }

    function _requireLeaf(Inner calldata inner, uint256 index, Made calldata made) private pure {
        bytes32 leaf = OpeningLib.itemLeaf(made.leaf);
        _require(MerkleLib.verify(inner.itemsRoot, leaf, index, inner.items, made.path), "leaf");
    }

    function _requireEntry(bytes32 taskHash, Made calldata made, Entry calldata entry)
        private
        pure
    {
        uint256 tokens = uint256(made.leaf.promptTokens) + made.leaf.newTokens;
        bytes32 leaf = TaskLib.entryLeaf(taskHash, made.leaf.item, entry);
        _require(
            tokens != 0
                && MerkleLib.verify(
                    made.leaf.traceRoot, leaf, entry.position, tokens - 1, entry.path
                ),
            "entry"
        );
    }

    /// @dev The output that the inferencer committed to; its task id is fixed by `seal`.
    function _requireOwnOutput(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Made calldata made,
        bytes calldata output
    ) private view {
        bytes32 hash = _outputHash(network, posting, sealing, output);
        _require(hash == made.leaf.outputHash, "output");
    }

    function _requirePosted(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        uint32 request,
        Output calldata output
    ) private view {
        bytes32 hash = _outputHash(network, posting, sealing, output.tokens);
        _requireOutput(posting, request, hash, output.path);
    }

    function _requireOutput(
        Posting calldata posting,
        uint32 request,
        bytes32 hash,
        bytes32[] calldata path
    ) private pure {
        bytes32 leaf = TaskLib.outputLeaf(request, hash);
        bool posted =
            MerkleLib.verify(posting.outputsRoot, leaf, request, posting.job.requests, path);
        _require(posted, "output");
    }

    function _outputHash(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        bytes calldata tokens
    ) private view returns (bytes32) {
        _require(tokens.length % 4 == 0, "output");
        JobId jobId = IProvable(network).jobIdOf(posting.job);
        return TaskLib.outputHash(HashLib.taskId(sealing.secret, jobId, 0), tokens);
    }

    function _requireAsked(Posting calldata posting, uint32 request, Asked calldata asked)
        private
        pure
        returns (bytes32 leaf)
    {
        leaf = TaskLib.requestLeaf(
            asked.tokensRoot, asked.length, asked.maxNewTokens, asked.sampling
        );
        bool included = MerkleLib.verify(
            posting.job.requestsRoot, leaf, request, posting.job.requests, asked.path
        );
        _require(included, "request");
    }

    function _requireSigned(
        address network,
        address scheduler,
        Receipt calldata receipt,
        bytes calldata signature
    ) private view {
        bytes32 separator = keccak256(
            abi.encode(
                DOMAIN_TYPEHASH, keccak256("VeriLLM"), keccak256("1"), block.chainid, network
            )
        );
        bytes32 digest = MessageHashUtils.toTypedDataHash(separator, TaskLib.hashReceipt(receipt));
        (address signer, ECDSA.RecoverError failure,) = ECDSA.tryRecoverCalldata(digest, signature);
        bool signed = failure == ECDSA.RecoverError.NoError
            && (signer == scheduler || IProvable(network).operatorOf(signer) == scheduler);
        require(signed, SignatureInvalid(scheduler));
    }

    // ── Tokens ──────────────────────────────────────────────────────────────────────────────────

    function _piece(bytes32 root, uint256 length, uint256 at, Piece calldata piece)
        private
        pure
        returns (uint32)
    {
        _require(TaskLib.isPiece(root, length, at, piece), "piece");
        return TaskLib.token(piece.tokens, at % TaskLib.PIECE);
    }

    /// @dev Token `at` by an entry at that position, or at the one before.
    function _tokenOf(Entry calldata entry, uint256 at) private pure returns (uint32) {
        if (entry.position == at) return entry.token;
        _require(uint256(entry.position) + 1 == at, "at");
        return entry.next;
    }

    /// @dev Whether the token of a position is the output's there; what is not of the output is not compared.
    function _isOutput(bytes calldata output, uint256 first, uint256 position, uint32 token)
        private
        pure
        returns (bool)
    {
        return position < first || TaskLib.token(output, position - first) == token;
    }

    function _isEnd(ModelSpec calldata spec, uint32 token) private pure returns (bool ends) {
        for (uint256 i = 0; i < spec.endTokens.length; ++i) {
            ends = ends || spec.endTokens[i] == token;
        }
    }

    // ── Tasks ───────────────────────────────────────────────────────────────────────────────────

    /// @dev Whether a task's own fields are the job's for this party. A member's task id is not looked at: a
    /// replacement has another number, and `seal` checks the signature over the right one.
    function _isOwnTask(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        ModelSpec calldata spec,
        uint8 party,
        Task calldata task
    ) private view returns (bool) {
        if (ModelId.unwrap(task.modelId) != ModelId.unwrap(posting.quote.modelId)) return false;
        if (party == 0) {
            JobId jobId = IProvable(network).jobIdOf(posting.job);
            return task.worker == posting.worker && task.lock >= posting.lock
                && task.items.length == posting.job.requests
                && task.taskId == HashLib.taskId(sealing.secret, jobId, 0);
        }
        uint256 requests = posting.job.requests;
        uint256 checked = requests < spec.checkedRequests ? requests : spec.checkedRequests;
        return task.worker == sealing.committee[party - 1].owner
            && task.lock >= sealing.committee[party - 1].lock && task.items.length == checked;
    }

    /// @dev The request that item `index` of a party's task is about.
    function _request(
        Posting calldata posting,
        Sealing calldata sealing,
        ModelSpec calldata spec,
        uint8 party,
        uint256 index
    ) private pure returns (uint32) {
        if (party == 0) return uint32(index); // came as one
        bytes32 draw = DrawLib.draw(sealing.secret, posting.commitment, sealing.beacon);
        uint16[] memory checked =
            DrawLib.checkedRequests(draw, posting.job.requests, spec.checkedRequests);
        _require(index < checked.length, "item");
        return checked[index];
    }

    // ── Margins ─────────────────────────────────────────────────────────────────────────────────

    /// @dev Members, each once: the inferencer is none.
    function _requireMajority(Sealing calldata sealing, Witness[] calldata witnesses) private pure {
        uint256 required = VerdictLib.majority(sealing.committee.length);
        require(witnesses.length >= required, TooFewMembers(witnesses.length, required));
        uint256 last = 0;
        for (uint256 i = 0; i < witnesses.length; ++i) {
            require(witnesses[i].party > last, PartiesNotAscending(witnesses[i].party));
            last = witnesses[i].party;
        }
    }

    /// @dev The item's prompt stands before an output in `tokens`.
    function _requirePrompt(Item calldata item, bytes calldata tokens) private pure {
        uint256 prompt = 4 * uint256(item.length);
        _require(prompt != 0 && tokens.length > prompt, "tokens");
        _require(TaskLib.tokensRoot(item.salt, tokens[:prompt]) == item.tokensRoot, "prompt");
    }

    /// @dev The position whose state chose a token of the output.
    function _chosenAt(Item calldata item, bytes calldata tokens, Witness calldata witness)
        private
        pure
        returns (uint256 position)
    {
        position = witness.entry.position;
        _require(position + 1 >= item.length && 4 * (position + 1) < tokens.length, "position");
    }

    function _requireWitness(
        Posting calldata posting,
        Sealing calldata sealing,
        Witness calldata witness
    ) private pure {
        Given calldata given = witness.given;
        _require(
            ModelId.unwrap(given.task.modelId) == ModelId.unwrap(posting.quote.modelId), "model"
        );
        _requireTask(sealing, witness.party, given);
        _requireItem(given);
        _requireLeaf(given.inner, given.index, witness.made);
        _requireEntry(given.inner.taskHash, witness.made, witness.entry);
    }

    /// @dev The witness ran prompt and output under the inferencer's seed, and shows its state at that position.
    function _requireSameRun(
        Witness calldata witness,
        bytes32 seed,
        bytes32 root,
        bytes calldata tokens,
        uint256 position
    ) private pure {
        Item calldata item = witness.given.item;
        _require(witness.entry.position == position, "position");
        _require(witness.entry.token == TaskLib.token(tokens, position), "token");
        _require(item.seed == seed, "seed");
        bool same = item.tokensRoot == root && 4 * uint256(item.length) + 4 == tokens.length;
        _require(same, "verification");
    }

    /// @dev By the witness's state the rival beats the token.
    function _requireBeaten(
        ModelSpec calldata spec,
        Item calldata item,
        Witness calldata witness,
        uint32 token,
        Rival calldata rival
    ) private pure {
        Margin memory found = _margin(spec, item, witness.entry, witness.finalState, token, rival);
        uint256 allowed = spec.profile.marginMaxRefund;
        require(found.margin > int256(allowed), MarginWithin(found.margin, allowed));
    }

    /// @dev Both rows lie under the model's head root, and its logits are rows times states.
    function _requireRows(ModelSpec calldata spec, uint32 token, Rival calldata rival)
        private
        pure
    {
        bool plain = spec.tokenProof && spec.headScale == HEAD_SCALE_ONE;
        require(plain, NoTokenProof(ModelId.wrap(keccak256(abi.encode(spec)))));
        _requireRow(spec, token, rival.token);
        _requireRow(spec, rival.id, rival.rival);
    }

    function _requireRow(ModelSpec calldata spec, uint32 id, Row calldata row) private pure {
        _require(row.bits.length == 2 * uint256(spec.hidden), "row");
        bytes32 leaf = MerkleLib.leaf(MerkleLib.HEAD, abi.encodePacked(id, row.bits));
        _require(MerkleLib.verify(spec.headRoot, leaf, id, spec.vocabulary, row.path), "row");
    }

    function _margin(
        ModelSpec calldata spec,
        Item calldata item,
        Entry calldata entry,
        bytes calldata state,
        uint32 token,
        Rival calldata rival
    ) private pure returns (Margin memory found) {
        bool shown = state.length == 2 * uint256(spec.hidden) && sha256(state) == entry.finalState;
        _require(shown, "finalState");
        int256 gap =
            MarginLib.noise(item.seed, entry.position, token, rival.id, item.sampling.temperature);
        found = MarginLib.between(state, rival.token.bits, rival.rival.bits, gap);
        if (MarginLib.truncates(item.sampling)) {
            uint256 required = spec.profile.logitTau;
            require(found.ahead >= int256(required), NotARival(found.ahead, required));
        }
    }
}
