// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {Proofs} from "./Proofs.sol";

/// @notice A network that believes every proof: what a proof costs is its own.
contract Believer {
    function jobIdOf(Job calldata job) external pure returns (JobId) {
        return JobId.wrap(keccak256(abi.encode(job)));
    }

    function operatorOf(address key) external pure returns (address) {
        return key;
    }

    function convict(Posting calldata, Sealing calldata, Claiming calldata, uint8, uint8, address)
        external {}

    function overrule(Posting calldata, Sealing calldata, Claiming calldata, address) external {}
}

/// @notice What the proofs cost as transactions, calldata with its floor and the 21 000 included, without what the
/// network does about them: at the default model's sizes and at wide ones.
/// forge-config: default.isolate = true
contract ProverGasTest is Proofs {
    uint32 private constant ROWS = 49_152;
    IProver private prover;
    address private network;
    bytes32 private _stateDigest;

    function setUp() public {
        vocabulary = ROWS;
        network = address(new Believer());
        bytes memory code = vm.getCode("Prover.sol:Prover");
        address at;
        assembly ("memory-safe") {
            at := create(0, add(code, 32), mload(code))
        }
        prover = IProver(at);
    }

    function test_margins_ofTheDefaultModel_takeUnder3M() public {
        hidden = 576;
        assertLt(_own("proofs at 576"), 3_000_000);
        assertLt(_committee("proofs at 576", 2), 3_000_000);
    }

    function test_margins_ofAWideModel_takeUnder15M() public {
        hidden = 8192;
        assertLt(_own("proofs at 8192"), 15_000_000);
        assertLt(_committee("proofs at 8192", 2), 15_000_000);
    }

    function test_margins_ofTheWidestModel_takeUnder15M() public {
        hidden = 16_384;
        assertLt(_own("proofs at 16384"), 15_000_000);
        assertLt(_committee("proofs at 16384", 2), 15_000_000);
    }

    // ── Calls ───────────────────────────────────────────────────────────────────────────────────

    function _own(string memory group) private returns (uint256) {
        (Whole memory w, uint256 q, Rival memory rival) = _margins();
        _callOwn(w, _given(w, 0, q), _made(w, 0, q), _entry(w, 0, q, w.prompts[q].length), rival);
        return vm.snapshotGasLastCall(group, "marginOwn");
    }

    function _callOwn(
        Whole memory w,
        Given memory given,
        Made memory made,
        Entry memory entry,
        Rival memory rival
    ) private {
        bytes memory state = _state(0, 0);
        prover.marginOwn(
            network, w.posting, w.sealing, w.claiming, w.spec, given, made, entry, state, rival
        );
    }

    function _committee(string memory group, uint256 count) private returns (uint256) {
        (Whole memory w, uint256 q, Rival memory rival) = _margins();
        Witness[] memory witnesses = new Witness[](count);
        uint256 place = w.checked[0] == q ? 0 : 1;
        for (uint256 k = 1; k <= count; ++k) {
            Entry memory entry = _entry(w, k, place, w.prompts[q].length);
            witnesses[k - 1] =
                Witness(uint8(k), _given(w, k, place), _made(w, k, place), entry, _state(k, 0));
        }
        _callCommittee(w, q, witnesses, rival);
        return vm.snapshotGasLastCall(group, "marginCommittee");
    }

    function _callCommittee(
        Whole memory w,
        uint256 q,
        Witness[] memory witnesses,
        Rival memory rival
    ) private {
        bytes memory tokens = abi.encodePacked(_packed(w.prompts[q]), _packed(w.outputs[q]));
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        prover.marginCommittee(
            network, w.posting, w.sealing, w.claiming, w.spec, given, made, tokens, witnesses, rival
        );
    }

    // ── A job whose inferencer chose the worse of two entries ───────────────────────────────────

    /// @dev Entries 0 and 1 stand beside each other in the head's tree; the rest of it are made-up siblings.
    function _margins() private returns (Whole memory w, uint256 q, Rival memory rival) {
        _stateDigest = sha256(_state(0, 0));
        w = _honest(Sampling(0, 0, 1_000_000, 0));
        Margin memory found = prover.marginOf(_state(0, 0), _row(0), _row(1), 0, 0, 0, 1, 0);
        uint32 worse = found.margin > 0 ? 0 : 1;
        for (uint256 i = 0; i < REQUESTS; ++i) {
            w.outputs[i][1] = worse;
            w.sides[0].tokens[i][w.prompts[i].length + 1] = worse;
        }
        _make(w, 0);
        _post(w);
        _verify(w);
        q = w.checked[0];
        rival = Rival(
            1 - worse, Row(_row(worse), _path(worse)), Row(_row(1 - worse), _path(1 - worse))
        );
    }

    function _path(uint32 id) private view returns (bytes32[] memory path) {
        path = new bytes32[](16);
        path[0] = _leaf(17, abi.encodePacked(1 - id, _row(1 - id)));
        for (uint256 i = 1; i < path.length; ++i) {
            path[i] = keccak256(abi.encode("sibling", i));
        }
    }

    function _headRoot() internal view override returns (bytes32 root) {
        root = _leaf(17, abi.encodePacked(uint32(0), _row(0)));
        bytes32[] memory path = _path(0);
        for (uint256 i = 0; i < path.length; ++i) {
            root = sha256(abi.encodePacked(bytes1(0x01), root, path[i]));
        }
    }

    function _state(uint256, uint256) internal view override returns (bytes memory) {
        return _dense(keccak256("state"));
    }

    function _row(uint32 id) internal view override returns (bytes memory) {
        return _dense(keccak256(abi.encode("row", id)));
    }

    /// @dev Values around 1 and no zero byte: the dearest calldata.
    function _dense(bytes32 seed) private view returns (bytes memory) {
        bytes32[] memory words = new bytes32[](hidden / 16);
        uint256 mask = 0x807f807f807f807f807f807f807f807f807f807f807f807f807f807f807f807f;
        uint256 base = 0x3f013f013f013f013f013f013f013f013f013f013f013f013f013f013f013f01;
        for (uint256 i = 0; i < words.length; ++i) {
            words[i] = bytes32((uint256(keccak256(abi.encode(seed, i))) & mask) | base);
        }
        return abi.encodePacked(words);
    }

    function _digest(uint256, uint256) internal view override returns (bytes32) {
        return _stateDigest;
    }

    function _jobId(Job memory job) internal pure override returns (JobId) {
        return JobId.wrap(keccak256(abi.encode(job)));
    }
}
