// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {DrawLib} from "../src/libraries/DrawLib.sol";
import {HashLib} from "../src/libraries/HashLib.sol";
import {Test} from "./Test.sol";
import {Trees} from "./Trees.sol";

/// @notice Calldata twins: the hashes that the fixture builds from memory.
contract Hashes {
    function item(Item calldata value) external pure returns (bytes32) {
        bytes32 sampling = keccak256(
            abi.encode(
                keccak256("Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)"),
                value.sampling
            )
        );
        bytes32 kind = keccak256(
            "Item(bytes32 salt,bytes32 tokensRoot,uint32 length,uint32 maxNewTokens,Sampling sampling,bytes32 seed)Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)"
        );
        return keccak256(
            abi.encode(
                kind,
                value.salt,
                value.tokensRoot,
                value.length,
                value.maxNewTokens,
                sampling,
                value.seed
            )
        );
    }

    function task(Task calldata value) external pure returns (bytes32) {
        bytes32 kind = keccak256(
            "Task(bytes32 taskId,address worker,bytes32 modelId,Item[] items,uint40 deadline,uint96 lock,uint96 fee)Item(bytes32 salt,bytes32 tokensRoot,uint32 length,uint32 maxNewTokens,Sampling sampling,bytes32 seed)Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)"
        );
        bytes32 items = keccak256(abi.encodePacked(value.items));
        bytes32 modelId = ModelId.unwrap(value.modelId);
        return keccak256(
            abi.encode(
                kind,
                value.taskId,
                value.worker,
                modelId,
                items,
                value.deadline,
                value.lock,
                value.fee
            )
        );
    }
}

/// @notice A sealed job with all that its parties signed, honest until a test changes it: change a party's
/// prompts, items, tokens or leaves, then commit it again.
/// @dev The state at every position is 1 in its first dimension and 0 elsewhere, and row v of the head is v there: the
/// logit of entry v is v.
abstract contract Proofs is Test {
    /// @notice One party: its task and what it made of it.
    struct Side {
        address owner;
        Task task;
        Item[] items;
        uint32[][] prompts;
        uint32[][] tokens; // of its trace: prompt and new ones
        ItemLeaf[] leaves;
        bytes32[] leafHashes;
        Inner inner;
    }

    struct Whole {
        ModelSpec spec;
        Posting posting;
        Sealing sealing;
        Claiming claiming;
        uint32[][] prompts;
        uint32[][] outputs;
        Sampling sampling;
        bytes32[] requestLeaves;
        bytes32[] outputHashes;
        bytes32[] outputLeaves;
        uint16[] checked;
        Side[] sides;
    }

    bytes32 internal constant SECRET = keccak256("secret");
    uint32 internal constant VOCABULARY = 16;
    uint32 internal constant BEST = 15;
    uint32 internal constant END = 1;
    uint256 internal constant NEW = 5;
    uint16 internal constant REQUESTS = 3;
    uint32 internal hidden = 32;
    uint32 internal vocabulary = VOCABULARY;
    Hashes private _hashes = new Hashes();

    /// @dev The id of a job on the network that is asked.
    function _jobId(Job memory job) internal view virtual returns (JobId);

    /// @dev The address of `account(name)`, without a label.
    function _who(string memory name) internal pure returns (address) {
        return vm.addr(uint256(keccak256(bytes(name))) >> 1);
    }

    // ── The honest job ──────────────────────────────────────────────────────────────────────────

    function _honest(Sampling memory sampling) internal view returns (Whole memory w) {
        w.spec = _spec();
        w.sampling = sampling;
        w.prompts = new uint32[][](REQUESTS);
        w.outputs = new uint32[][](REQUESTS);
        for (uint32 q = 0; q < REQUESTS; ++q) {
            w.prompts[q] = new uint32[](q == 0 ? 40 : 5 + q); // the first has two pieces
            for (uint32 i = 0; i < w.prompts[q].length; ++i) {
                w.prompts[q][i] = (q + i) % VOCABULARY;
            }
            w.outputs[q] = new uint32[](NEW);
            for (uint256 i = 0; i < NEW; ++i) {
                w.outputs[q][i] = BEST;
            }
        }
        _order(w);
        _infer(w);
        _verify(w);
    }

    function _spec() internal view virtual returns (ModelSpec memory spec) {
        spec.name = "proofs";
        spec.vocabulary = vocabulary;
        spec.hidden = hidden;
        spec.context = 4096;
        spec.depth = 8;
        spec.committedLayers = new uint16[](1);
        spec.committedLayers[0] = 8;
        spec.sliceDims = 16;
        spec.endTokens = new uint32[](2);
        (spec.endTokens[0], spec.endTokens[1]) = (0, END);
        spec.headScale = 1_000_000;
        spec.tokenProof = true;
        spec.committee = 3;
        spec.checkedRequests = 2;
        spec.positions = 4;
        spec.profile.marginMaxRefund = 250_000;
        spec.profile.marginMaxSlash = 400_000;
        spec.profile.logitTau = 1_500_000;
        spec.headRoot = _headRoot();
    }

    /// @dev Requests, quote and job of the prompts, and the first task.
    function _order(Whole memory w) internal pure {
        w.requestLeaves = new bytes32[](REQUESTS);
        for (uint256 q = 0; q < REQUESTS; ++q) {
            w.requestLeaves[q] = _requestLeaf(_asked(w, q));
        }
        Quote memory quote;
        quote.scheduler = _who("scheduler");
        quote.modelId = ModelId.wrap(keccak256(abi.encode(w.spec)));
        quote.unitPrice = 1;
        quote.drawCommit = keccak256(abi.encode(SECRET));
        w.posting.quote = quote;
        w.posting.job.client = _who("client");
        w.posting.job.quote = HashLib.hashQuote(quote);
        w.posting.job.requestsRoot = Trees.root(w.requestLeaves);
        w.posting.job.requests = REQUESTS;
        w.posting.job.maxFee = 10 ether;
        w.posting.worker = _who("worker0");
        w.posting.lock = 20 ether;
    }

    function _infer(Whole memory w) internal view {
        w.sides = new Side[](4);
        Side memory side = w.sides[0];
        side.owner = w.posting.worker;
        side.items = new Item[](REQUESTS);
        side.prompts = new uint32[][](REQUESTS);
        side.tokens = new uint32[][](REQUESTS);
        for (uint256 q = 0; q < REQUESTS; ++q) {
            side.prompts[q] = w.prompts[q];
            side.tokens[q] = _concat(w.prompts[q], w.outputs[q], NEW);
            side.items[q] = _item(w, q, w.prompts[q], uint32(NEW) + 2);
        }
        _give(w, 0);
        _make(w, 0);
        _post(w);
    }

    /// @dev The committee of what was posted, honest.
    function _verify(Whole memory w) internal view {
        bytes32 draw = DrawLib.draw(SECRET, w.posting.commitment, w.sealing.beacon);
        w.checked = DrawLib.checkedRequests(draw, REQUESTS, w.spec.checkedRequests);
        w.sealing.committee = new Member[](3);
        for (uint256 k = 1; k < 4; ++k) {
            Side memory side = w.sides[k];
            side.owner = _who(string.concat("worker", vm.toString(k)));
            side.items = new Item[](w.checked.length);
            side.prompts = new uint32[][](w.checked.length);
            side.tokens = new uint32[][](w.checked.length);
            for (uint256 i = 0; i < w.checked.length; ++i) {
                uint256 q = w.checked[i];
                side.prompts[i] = _concat(w.prompts[q], w.outputs[q], NEW - 1);
                uint32[] memory extra = new uint32[](2);
                side.tokens[i] = _concat(side.prompts[i], extra, 2);
                side.items[i] = _item(w, q, side.prompts[i], 3);
            }
            _give(w, k);
            _make(w, k);
            _sealMember(w, k);
        }
    }

    // ── Committing again ────────────────────────────────────────────────────────────────────────

    /// @dev The task of a party's items.
    function _give(Whole memory w, uint256 k) internal view {
        Side memory side = w.sides[k];
        side.task.taskId = HashLib.taskId(SECRET, _jobId(w.posting.job), k);
        side.task.worker = side.owner;
        side.task.modelId = w.posting.quote.modelId;
        side.task.lock = w.posting.lock;
        _rehash(side);
    }

    function _rehash(Side memory side) internal view {
        side.task.items = new bytes32[](side.items.length);
        for (uint256 i = 0; i < side.items.length; ++i) {
            side.task.items[i] = _hashes.item(side.items[i]);
        }
        side.inner.taskHash = _hashes.task(side.task);
    }

    /// @dev The leaves of a party's tokens, and its inner.
    function _make(Whole memory w, uint256 k) internal view {
        Side memory side = w.sides[k];
        side.leaves = new ItemLeaf[](side.items.length);
        for (uint256 i = 0; i < side.leaves.length; ++i) {
            ItemLeaf memory leaf = side.leaves[i];
            leaf.item = uint32(i);
            leaf.promptTokens = uint32(side.prompts[i].length);
            leaf.newTokens = uint32(side.tokens[i].length - side.prompts[i].length);
            leaf.outputHash = _outputHash(w, k, k == 0 ? w.outputs[i] : new uint32[](1));
        }
        _root(side);
    }

    /// @dev The roots of a party's leaves as they are.
    function _root(Side memory side) internal view {
        side.leafHashes = new bytes32[](side.leaves.length);
        for (uint256 i = 0; i < side.leaves.length; ++i) {
            ItemLeaf memory leaf = side.leaves[i];
            leaf.traceRoot = Trees.root(_trace(side, i));
            side.leafHashes[i] = _leaf(
                2,
                abi.encodePacked(
                    leaf.item, leaf.promptTokens, leaf.newTokens, leaf.traceRoot, leaf.outputHash
                )
            );
        }
        side.inner.items = uint32(side.leaves.length);
        side.inner.itemsRoot = Trees.root(side.leafHashes);
    }

    /// @dev What the scheduler posts of the inferencer's commitment.
    function _post(Whole memory w) internal view {
        w.outputHashes = new bytes32[](REQUESTS);
        for (uint256 q = 0; q < REQUESTS; ++q) {
            w.outputHashes[q] = _outputHash(w, 0, w.outputs[q]);
        }
        _postOutputs(w);
    }

    function _postOutputs(Whole memory w) internal view {
        w.outputLeaves = new bytes32[](REQUESTS);
        for (uint32 q = 0; q < REQUESTS; ++q) {
            w.outputLeaves[q] = _leaf(4, abi.encodePacked(q, w.outputHashes[q]));
        }
        w.posting.outputsRoot = Trees.root(w.outputLeaves);
        w.sealing.secret = SECRET;
        w.sealing.beacon = keccak256("beacon");
        w.sealing.inner = w.sides[0].inner;
        w.posting.commitment = HashLib.hashCommitment(
            HashLib.taskId(SECRET, _jobId(w.posting.job), 0), HashLib.hashInner(w.sides[0].inner)
        );
    }

    function _sealMember(Whole memory w, uint256 k) internal pure {
        Side memory side = w.sides[k];
        w.sealing.committee[k - 1] =
            Member(uint32(k), side.owner, HashLib.hashInner(side.inner), w.posting.lock);
    }

    // ── What a call brings ──────────────────────────────────────────────────────────────────────

    function _given(Whole memory w, uint256 k, uint256 index) internal pure returns (Given memory) {
        Side memory side = w.sides[k];
        return Given(side.inner, side.task, uint32(index), side.items[index]);
    }

    function _made(Whole memory w, uint256 k, uint256 index) internal pure returns (Made memory) {
        Side memory side = w.sides[k];
        return Made(side.leaves[index], Trees.path(side.leafHashes, index));
    }

    function _entry(Whole memory w, uint256 k, uint256 index, uint256 position)
        internal
        view
        virtual
        returns (Entry memory)
    {
        Side memory side = w.sides[k];
        return Entry({
            position: uint32(position),
            token: side.tokens[index][position],
            next: side.tokens[index][position + 1],
            slices: sha256("slices"),
            finalState: _digest(k, position),
            path: Trees.path(_trace(side, index), position)
        });
    }

    function _asked(Whole memory w, uint256 q) internal pure returns (Asked memory asked) {
        asked.tokensRoot = _tokensRoot(_salt(q), w.prompts[q]);
        asked.length = uint32(w.prompts[q].length);
        asked.maxNewTokens = uint32(NEW) + 2;
        asked.sampling = w.sampling;
        if (w.requestLeaves.length != 0 && w.requestLeaves[0] != 0) {
            asked.path = Trees.path(w.requestLeaves, q);
        }
    }

    function _output(Whole memory w, uint256 q) internal pure returns (Output memory) {
        return Output(_packed(w.outputs[q]), Trees.path(w.outputLeaves, q));
    }

    function _piece(uint256 q, uint32[] memory tokens, uint256 at)
        internal
        pure
        returns (Piece memory piece)
    {
        uint32 index = uint32(at / 32);
        piece.salt = sha256(abi.encodePacked(_salt(q), index));
        piece.tokens = _part(tokens, index);
        piece.path = Trees.path(_pieces(_salt(q), tokens), index);
    }

    function _rival(uint32 token, uint32 rival) internal view virtual returns (Rival memory) {
        bytes32[] memory leaves = _headLeaves();
        return Rival(
            rival,
            Row(_row(token), Trees.path(leaves, token)),
            Row(_row(rival), Trees.path(leaves, rival))
        );
    }

    function _outputHash(Whole memory w, uint256 k, uint32[] memory tokens)
        internal
        view
        returns (bytes32)
    {
        bytes32 task = HashLib.taskId(SECRET, _jobId(w.posting.job), k);
        return sha256(abi.encodePacked(task, _packed(tokens)));
    }

    // ── States and rows ─────────────────────────────────────────────────────────────────────────

    function _state(uint256, uint256) internal view virtual returns (bytes memory state) {
        state = new bytes(2 * hidden);
        (state[0], state[1]) = (0x3f, 0x80);
    }

    function _digest(uint256 k, uint256 position) internal view virtual returns (bytes32) {
        return sha256(_state(k, position));
    }

    function _row(uint32 id) internal view virtual returns (bytes memory row) {
        row = new bytes(2 * hidden);
        uint256 bits = _bf16(id);
        (row[0], row[1]) = (bytes1(uint8(bits >> 8)), bytes1(uint8(bits)));
    }

    function _headRoot() internal view virtual returns (bytes32) {
        return Trees.root(_headLeaves());
    }

    function _headLeaves() internal view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](VOCABULARY);
        for (uint32 id = 0; id < VOCABULARY; ++id) {
            leaves[id] = _leaf(17, abi.encodePacked(id, _row(id)));
        }
    }

    /// @dev The bits of a small whole number.
    function _bf16(uint256 value) internal pure returns (uint256) {
        if (value == 0) return 0;
        uint256 exponent = 127;
        uint256 mantissa = value << 7;
        for (; mantissa >= 256; mantissa >>= 1) {
            ++exponent;
        }
        return (exponent << 7) | (mantissa & 0x7f);
    }

    // ── Trees and tokens ────────────────────────────────────────────────────────────────────────

    function _item(Whole memory w, uint256 q, uint32[] memory tokens, uint32 maxNewTokens)
        private
        pure
        returns (Item memory)
    {
        bytes32 seed = keccak256(abi.encode(SECRET, w.requestLeaves[q], q));
        bytes32 root = _tokensRoot(_salt(q), tokens);
        Sampling memory sampling = abi.decode(abi.encode(w.sampling), (Sampling)); // one of its own
        return Item(_salt(q), root, uint32(tokens.length), maxNewTokens, sampling, seed);
    }

    function _trace(Side memory side, uint256 index)
        internal
        view
        returns (bytes32[] memory leaves)
    {
        uint32[] memory tokens = side.tokens[index];
        leaves = new bytes32[](tokens.length - 1);
        uint256 k = side.items.length == REQUESTS ? 0 : 1;
        for (uint32 i = 0; i < leaves.length; ++i) {
            leaves[i] = _leaf(
                1,
                abi.encodePacked(
                    side.inner.taskHash,
                    side.leaves[index].item,
                    i,
                    tokens[i],
                    tokens[i + 1],
                    sha256("slices"),
                    _digest(k, i)
                )
            );
        }
    }

    function _requestLeaf(Asked memory asked) private pure returns (bytes32) {
        Sampling memory sampling = asked.sampling;
        return _leaf(
            3,
            abi.encodePacked(
                asked.tokensRoot,
                asked.length,
                asked.maxNewTokens,
                sampling.temperature,
                sampling.topK,
                sampling.topP,
                sampling.minP
            )
        );
    }

    function _leaf(uint8 kind, bytes memory payload) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0x00), kind, payload));
    }

    function _salt(uint256 q) internal pure returns (bytes32) {
        return keccak256(abi.encode("salt", q));
    }

    function _tokensRoot(bytes32 salt, uint32[] memory tokens) internal pure returns (bytes32) {
        return Trees.root(_pieces(salt, tokens));
    }

    function _pieces(bytes32 salt, uint32[] memory tokens)
        private
        pure
        returns (bytes32[] memory leaves)
    {
        leaves = new bytes32[]((tokens.length + 31) / 32);
        for (uint32 i = 0; i < leaves.length; ++i) {
            bytes32 pieceSalt = sha256(abi.encodePacked(salt, i));
            leaves[i] = _leaf(5, abi.encodePacked(pieceSalt, _part(tokens, i)));
        }
    }

    function _part(uint32[] memory tokens, uint256 index) private pure returns (bytes memory) {
        uint256 from = 32 * index;
        uint256 size = tokens.length - from < 32 ? tokens.length - from : 32;
        uint32[] memory part = new uint32[](size);
        for (uint256 i = 0; i < size; ++i) {
            part[i] = tokens[from + i];
        }
        return _packed(part);
    }

    function _packed(uint32[] memory tokens) internal pure returns (bytes memory packed) {
        packed = new bytes(4 * tokens.length);
        for (uint256 i = 0; i < packed.length; ++i) {
            packed[i] = bytes1(uint8(tokens[i / 4] >> (8 * (3 - i % 4))));
        }
    }

    /// @dev `one`, and the first `count` of `other`.
    function _concat(uint32[] memory one, uint32[] memory other, uint256 count)
        internal
        pure
        returns (uint32[] memory whole)
    {
        whole = new uint32[](one.length + count);
        for (uint256 i = 0; i < whole.length; ++i) {
            whole[i] = i < one.length ? one[i] : other[i - one.length];
        }
    }
}
