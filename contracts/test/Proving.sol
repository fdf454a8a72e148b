// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Proofs} from "./Proofs.sol";
import {Trees} from "./Trees.sol";

/// @notice A network that remembers what it was asked to do.
contract Ear is IProvable {
    uint256 public calls;
    uint8 public party;
    uint8 public reason;
    address public finder;
    bytes32 public about;
    bool public overruled;
    mapping(address key => address operator) public operatorOf;

    function setKey(address key, address operator) external {
        operatorOf[key] = operator;
    }

    function jobIdOf(Job calldata job) external pure returns (JobId) {
        return JobId.wrap(keccak256(abi.encode(job)));
    }

    function convict(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party_,
        uint8 reason_,
        address finder_
    ) external {
        (party, reason, finder) = (party_, reason_, finder_);
        about = keccak256(abi.encode(posting, sealing, claiming));
        ++calls;
    }

    function overrule(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        address finder_
    ) external {
        (overruled, finder) = (true, finder_);
        about = keccak256(abi.encode(posting, sealing, claiming));
        ++calls;
    }
}

/// @notice The Prover before a network that only listens, and every call of it.
abstract contract Proving is Proofs {
    uint8 internal constant SCHEDULER = 255;
    uint256 internal constant PPM = 1_000_000;
    IProver internal prover;
    Ear internal ear;
    address internal finder;
    Sampling internal _greedy = Sampling(0, 0, 1_000_000, 0);

    function setUp() public {
        ear = new Ear();
        bytes memory code = vm.getCode("Prover.sol:Prover");
        address at;
        assembly ("memory-safe") {
            at := create(0, add(code, 32), mload(code))
        }
        prover = IProver(at);
        finder = person("finder");
    }

    // ── Calls ───────────────────────────────────────────────────────────────────────────────────

    bytes2 internal _odd;

    function _state(uint256 k, uint256 position)
        internal
        view
        override
        returns (bytes memory state)
    {
        state = super._state(k, position);
        if (_odd != 0) (state[0], state[1]) = (_odd[0], _odd[1]);
    }

    function _jobId(Job memory job) internal pure override returns (JobId) {
        return JobId.wrap(keccak256(abi.encode(job)));
    }

    /// @dev The network hears what comes next, or the call reverts with exactly `refusal`.
    function _expect(bytes memory refusal) internal {
        if (refusal.length != 0) vm.expectRevert(refusal);
        vm.prank(finder);
    }

    function _plain(bytes4 selector) internal pure returns (bytes memory) {
        return selector == 0 ? bytes("") : abi.encodeWithSelector(selector);
    }

    function _lengths(Whole memory w, uint256 k, uint256 i, bytes4 refusal) internal {
        _callLengths(w, k, _given(w, k, i), _made(w, k, i), _plain(refusal));
    }

    function _callLengths(
        Whole memory w,
        uint256 k,
        Given memory given,
        Made memory made,
        bytes memory refusal
    ) internal {
        _expect(refusal);
        prover.lengthsDiffer(address(ear), w.posting, w.sealing, w.claiming, uint8(k), given, made);
    }

    /// @dev An item that is out of bounds by its own fields, or by token `at`.
    function _bounds(Whole memory w, uint256 k, uint256 i, uint256 at, bytes memory refusal)
        internal
    {
        Piece memory piece = _piece(k == 0 ? i : w.checked[i], w.sides[k].prompts[i], at);
        _callBounds(w, k, _given(w, k, i), at, piece, refusal);
    }

    function _callBounds(
        Whole memory w,
        uint256 k,
        Given memory given,
        uint256 at,
        Piece memory piece,
        bytes memory refusal
    ) internal {
        _expect(refusal);
        prover.outOfBounds(
            address(ear),
            w.posting,
            w.sealing,
            w.claiming,
            w.spec,
            uint8(k),
            given,
            uint32(at),
            piece
        );
    }

    function _traceAt(
        Whole memory w,
        uint256 k,
        uint256 i,
        uint256 at,
        uint256 position,
        bytes4 refusal
    ) internal {
        uint256 q = k == 0 ? i : w.checked[i];
        Piece memory piece = _piece(q, w.sides[k].prompts[i], at);
        Entry memory entry = _entry(w, k, i, position);
        _callTrace(w, k, _given(w, k, i), _made(w, k, i), uint32(at), piece, entry, _plain(refusal));
    }

    function _callTrace(
        Whole memory w,
        uint256 k,
        Given memory given,
        Made memory made,
        uint32 at,
        Piece memory piece,
        Entry memory entry,
        bytes memory refusal
    ) internal {
        _expect(refusal);
        prover.traceDiffers(
            address(ear), w.posting, w.sealing, w.claiming, uint8(k), given, made, at, piece, entry
        );
    }

    function _outputAt(Whole memory w, uint256 q, uint256 position, bytes4 refusal) internal {
        Entry memory entry = _entry(w, 0, q, position);
        _callOutput(w, q, _made(w, 0, q), _packed(w.outputs[q]), entry, _plain(refusal));
    }

    function _callOutput(
        Whole memory w,
        uint256 q,
        Made memory made,
        bytes memory output,
        Entry memory entry,
        bytes memory refusal
    ) internal {
        _expect(refusal);
        prover.outputDiffers(
            address(ear), w.posting, w.sealing, w.claiming, uint32(q), made, output, entry
        );
    }

    function _end(Whole memory w, uint256 q, uint32 at, bytes memory refusal) internal {
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        bytes memory output = _packed(w.outputs[q]);
        _expect(refusal);
        prover.afterEnd(
            address(ear), w.posting, w.sealing, w.claiming, w.spec, given, made, output, at
        );
    }

    function _task(Whole memory w, uint256 k, uint256 i, bytes4 refusal) internal {
        uint256 q = k == 0 ? i : w.checked[i];
        _callTask(w, k, _given(w, k, i), _asked(w, q), _output(w, q), _plain(refusal));
    }

    function _callTask(
        Whole memory w,
        uint256 k,
        Given memory given,
        Asked memory asked,
        Output memory output,
        bytes memory refusal
    ) internal {
        _expect(refusal);
        prover.taskDiffers(
            address(ear), w.posting, w.sealing, w.claiming, w.spec, uint8(k), given, asked, output
        );
    }

    function _prompt(Whole memory w, uint256 k, uint256 i, uint256 at, bytes4 refusal) internal {
        uint256 q = w.checked[i];
        Told memory told;
        told.at = uint32(at);
        told.given = _piece(q, w.sides[k].prompts[i], at);
        if (at < w.prompts[q].length) told.asked = _piece(q, w.prompts[q], at);
        _callPrompt(w, k, q, _given(w, k, i), told, _plain(refusal));
    }

    function _callPrompt(
        Whole memory w,
        uint256 k,
        uint256 q,
        Given memory given,
        Told memory told,
        bytes memory refusal
    ) internal {
        Asked memory asked = _asked(w, q);
        Output memory output = _output(w, q);
        _expect(refusal);
        prover.promptDiffers(
            address(ear),
            w.posting,
            w.sealing,
            w.claiming,
            w.spec,
            uint8(k),
            given,
            asked,
            told,
            output
        );
    }

    function _leaf(Whole memory w, uint256 q, Asked memory asked, bytes memory refusal) internal {
        Made memory made = _made(w, 0, q);
        _expect(refusal);
        prover.leafDiffers(address(ear), w.posting, w.sealing, w.claiming, uint32(q), made, asked);
    }

    function _callOutputs(
        Whole memory w,
        uint32 q,
        bytes32 hash,
        bytes32[] memory path,
        bytes memory refusal
    ) internal {
        Made memory made = _made(w, 0, q);
        _expect(refusal);
        prover.outputsDiffer(address(ear), w.posting, w.sealing, w.claiming, q, made, hash, path);
    }

    function _receipt(Whole memory w, uint32 q, bytes32 hash)
        internal
        pure
        returns (Receipt memory)
    {
        return Receipt(_jobId(w.posting.job), w.sides[0].task.taskId, q, hash);
    }

    function _sign(Receipt memory receipt, uint256 key) internal view returns (bytes memory) {
        bytes32 kind =
            keccak256("Receipt(bytes32 jobId,bytes32 taskId,uint32 request,bytes32 outputHash)");
        bytes32 separator = keccak256(
            abi.encode(
                keccak256(
                    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
                ),
                keccak256("VeriLLM"),
                keccak256("1"),
                block.chainid,
                address(ear)
            )
        );
        bytes32 structHash = keccak256(abi.encode(kind, receipt));
        return signature(key, keccak256(abi.encodePacked(hex"1901", separator, structHash)));
    }

    function _callReceipt(
        Whole memory w,
        Receipt memory receipt,
        bytes memory signed,
        bytes memory refusal
    ) internal {
        bytes32[] memory path = Trees.path(w.outputLeaves, receipt.request);
        bytes32 hash = w.outputHashes[receipt.request];
        _expect(refusal);
        prover.receiptDiffers(
            address(ear), w.posting, w.sealing, w.claiming, receipt, signed, hash, path
        );
    }

    function _own(
        Whole memory w,
        uint256 q,
        uint256 position,
        uint32 token,
        uint32 rival,
        bytes memory refusal
    ) internal {
        _callOwn(w, q, position, _state(0, position), _rival(token, rival), refusal);
    }

    function _callOwn(
        Whole memory w,
        uint256 q,
        uint256 position,
        bytes memory state,
        Rival memory rival,
        bytes memory refusal
    ) internal {
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        Entry memory entry = _entry(w, 0, q, position);
        _expect(refusal);
        prover.marginOwn(
            address(ear), w.posting, w.sealing, w.claiming, w.spec, given, made, entry, state, rival
        );
    }

    function _witnesses(Whole memory w, uint256 q, uint256 position, uint256 who)
        internal
        view
        returns (Witness[] memory witnesses)
    {
        uint256 place = w.checked[0] == q ? 0 : 1;
        uint256 count = 0;
        for (uint256 k = 1; k < 4; ++k) {
            count += (who >> k) & 1;
        }
        witnesses = new Witness[](count);
        count = 0;
        for (uint256 k = 1; k < 4; ++k) {
            if ((who >> k) & 1 == 0) continue;
            witnesses[count++] = Witness(
                uint8(k),
                _given(w, k, place),
                _made(w, k, place),
                _entry(w, k, place, position),
                _state(k, position)
            );
        }
    }

    function _committee(
        Whole memory w,
        uint256 q,
        uint256 position,
        uint32 token,
        uint32 rival,
        uint256 who,
        bytes memory refusal
    ) internal {
        Witness[] memory witnesses = _witnesses(w, q, position, who);
        _callCommittee(w, q, witnesses, _rival(token, rival), refusal);
    }

    function _callCommittee(
        Whole memory w,
        uint256 q,
        Witness[] memory witnesses,
        Rival memory rival,
        bytes memory refusal
    ) internal {
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        bytes memory tokens = abi.encodePacked(_packed(w.prompts[q]), _packed(w.outputs[q]));
        _expect(refusal);
        prover.marginCommittee(
            address(ear),
            w.posting,
            w.sealing,
            w.claiming,
            w.spec,
            given,
            made,
            tokens,
            witnesses,
            rival
        );
    }

    // ── Changes ─────────────────────────────────────────────────────────────────────────────────

    /// @dev The inferencer commits anew to what it has, and all that follows is done again.
    function _recommit(Whole memory w) internal view {
        _make(w, 0);
        _repost(w);
    }

    function _repost(Whole memory w) internal view {
        _post(w);
        _verify(w);
    }

    /// @dev The inferencer chooses another token, in output and trace.
    function _tell(Whole memory w, uint256 q, uint256 index, uint32 token) internal view {
        w.outputs[q] = _copy(w.outputs[q]);
        w.outputs[q][index] = token;
        w.sides[0].tokens[q] = _concat(w.prompts[q], w.outputs[q], NEW);
        _recommit(w);
    }

    /// @dev The same for a request that is checked, whichever that is afterwards.
    function _checkedWith(Whole memory w, uint256 index, uint32 token)
        internal
        view
        returns (uint256 q)
    {
        for (q = 0; q < REQUESTS; ++q) {
            _tell(w, q, index, token);
        }
        return w.checked[1];
    }

    /// @dev The job of the spec as it is.
    function _another(Whole memory w) internal view {
        w.posting.quote.modelId = _model(w);
        _give(w, 0);
        _recommit(w);
    }

    function _shorter(Item[] memory items) internal pure returns (Item[] memory fewer) {
        fewer = new Item[](items.length - 1);
        for (uint256 i = 0; i < fewer.length; ++i) {
            fewer[i] = items[i];
        }
    }

    function _copy(uint32[] memory tokens) internal pure returns (uint32[] memory) {
        return _concat(tokens, tokens, 0);
    }

    function _note(string memory proof) internal {
        assertLt(vm.snapshotGasLastCall("proofs", proof), 15_000_000);
    }

    // ── What is expected ────────────────────────────────────────────────────────────────────────

    function _expectConvicted(Whole memory w, uint256 party, uint8 reason) internal view {
        assertEq(ear.party(), party, "party");
        assertEq(ear.reason(), reason, "reason");
        assertEq(ear.finder(), finder, "finder");
        assertEq(ear.about(), keccak256(abi.encode(w.posting, w.sealing, w.claiming)), "about");
        assertFalse(ear.overruled());
    }

    function _expectOverruled(Whole memory w) internal view {
        assertTrue(ear.overruled());
        assertEq(ear.finder(), finder, "finder");
        assertEq(ear.about(), keccak256(abi.encode(w.posting, w.sealing, w.claiming)), "about");
    }

    function _expectSilence() internal view {
        assertEq(ear.calls(), 0, "the network heard nothing");
    }

    function _invalid(bytes32 fact) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(IProver.ProofInvalid.selector, fact);
    }

    function _within(int256 margin, uint256 allowed) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(IProver.MarginWithin.selector, margin, allowed);
    }

    function _model(Whole memory w) internal pure returns (ModelId) {
        return ModelId.wrap(keccak256(abi.encode(w.spec)));
    }

    /// @dev What float32 may round of two logits that add up to `magnitudes`.
    function _rounding(uint256 magnitudes) internal view returns (uint256) {
        return (((((magnitudes << 84) >> 24) + 1) * (hidden + 32) * PPM) >> 84) + 32;
    }

    function _marginOf(Whole memory w, uint256 q, uint256 position, uint32 token, uint32 rival)
        internal
        view
        returns (Margin memory)
    {
        return prover.marginOf(
            _state(0, position),
            _row(token),
            _row(rival),
            w.sides[0].items[q].seed,
            uint32(position),
            token,
            rival,
            w.sampling.temperature
        );
    }

    /// @dev The token with the best score.
    function _sampled(Whole memory w, uint256 q, uint256 position)
        internal
        view
        returns (uint32 best)
    {
        for (uint32 rival = 1; rival < VOCABULARY; ++rival) {
            if (_marginOf(w, q, position, best, rival).margin > 0) best = rival;
        }
    }

    function _tokenError(Whole memory w, uint256 q, uint256 position, uint32 token, uint32 rival)
        internal
        view
        returns (bytes memory)
    {
        Margin memory found = _marginOf(w, q, position, token, rival);
        assertLe(found.margin, 0, "the best has no rival");
        return _within(found.margin, 400_000 + found.rounding);
    }
}
