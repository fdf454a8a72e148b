// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {Cases} from "../Cases.sol";

/// @notice A bundle that is asked for on chain is served there, or its claim is void.
contract DemandsTest is Cases {
    uint256 private constant CHUNK = 65_536;

    // ── Served ──────────────────────────────────────────────────────────────────────────────────

    function test_demand_holdsTheClaimAndTheBond() public {
        Case memory c = _demanded(_bundle(1000));
        (Status status, uint40 openBy,) = network.jobState(c.id);
        assertEq(uint8(status), uint8(Status.Demanded));
        assertEq(openBy, vm.getBlockTimestamp() + terms.openingWindow);
        assertEq(_locked(challenger), terms.challengeBond);
        pass(terms.disputeWindow);
        _expectStatus(c, Status.Demanded, Status.Claimed);
        network.finalize(c.posting, c.sealing, c.claiming);
        _expectStatus(c, Status.Demanded, Status.Claimed);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
    }

    function test_serveBundle_inPartsGivesTheClaimANewWindowAndTheBondToItsMaker() public {
        bytes memory bundle = _bundle(2 * CHUNK + 7);
        Case memory c = _demanded(bundle);
        _serveChunk(c, bundle, 2);
        _serveChunk(c, bundle, 0);
        _serveChunk(c, bundle, 0); // again: harmless
        assertEq(uint8(_status(c)), uint8(Status.Demanded));
        _serveChunk(c, bundle, 1);
        (Status status, uint40 finalizeAfter,) = network.jobState(c.id);
        assertEq(uint8(status), uint8(Status.Claimed));
        assertEq(finalizeAfter, vm.getBlockTimestamp() + terms.disputeWindow);
        assertEq(_balance(challenger), STAKE - terms.challengeBond);
        assertEq(_locked(challenger), 0);
        _finalize(c);
        assertGt(_balance(claimer), STAKE + terms.challengeBond);
        _assertConserved();
    }

    function test_serveBundle_takesALastChunkOfFullSize() public {
        bytes memory bundle = _bundle(2 * CHUNK);
        Case memory c = _demanded(bundle);
        _serveChunk(c, bundle, 1);
        _serveChunk(c, bundle, 0);
        assertEq(uint8(_status(c)), uint8(Status.Claimed));
    }

    function test_serveBundle_revertsForEveryFalsehood() public {
        bytes memory bundle = _bundle(CHUNK + 7);
        Case memory c = _demanded(bundle);
        (bytes[] memory chunks, bytes32[] memory hashes) = _chunks(bundle);
        _expectChunk(c, 0, chunks[1], hashes);
        _expectChunk(c, 2, chunks[1], hashes);
        bytes memory damaged = bytes.concat(chunks[1]);
        damaged[0] ^= 0x01;
        _expectChunk(c, 1, damaged, hashes);
        bytes32[] memory others = new bytes32[](2);
        (others[0], others[1]) = (hashes[1], hashes[0]);
        _expectChunk(c, 0, chunks[1], others);
        _expectChunk(c, 0, chunks[0], new bytes32[](0));
    }

    /// @dev One root would have many bundles if chunks could be cut anywhere.
    function test_serveBundle_revertsForChunksOfOtherSizes() public {
        bytes memory bundle = _bundle(1000);
        bytes32[] memory hashes = new bytes32[](2);
        (bytes memory head, bytes memory tail) = (_slice(bundle, 0, 500), _slice(bundle, 500, 1000));
        (hashes[0], hashes[1]) = (keccak256(head), keccak256(tail));
        Case memory c = _demandedAs(keccak256(abi.encodePacked(hashes)));
        _expectChunk(c, 0, head, hashes);
        hashes = new bytes32[](1);
        hashes[0] = keccak256("");
        c = _demandedAs(keccak256(abi.encodePacked(hashes)));
        _expectChunk(c, 0, "", hashes);
        bytes memory large = _bundle(CHUNK + 1);
        hashes[0] = keccak256(large);
        c = _demandedAs(keccak256(abi.encodePacked(hashes)));
        _expectChunk(c, 0, large, hashes);
    }

    function test_serveBundle_revertsForMoreChunksThanItCanCount() public {
        bytes32[] memory hashes = new bytes32[](257);
        hashes[256] = keccak256("last");
        Case memory c = _demandedAs(keccak256(abi.encodePacked(hashes)));
        _expectChunk(c, 256, "last", hashes);
    }

    function test_deadlineGuard_serveBundleRevertsAfterOpenBy() public {
        bytes memory bundle = _bundle(10);
        Case memory c = _demanded(bundle);
        (, uint40 openBy,) = network.jobState(c.id);
        vm.warp(openBy);
        (bytes[] memory chunks, bytes32[] memory hashes) = _chunks(bundle);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, openBy));
        network.serveBundle(c.posting, c.sealing, c.claiming, 0, chunks[0], hashes);
    }

    function test_fuzz_serveBundle_takesEveryLengthInAnyOrder(uint256 length, uint256 first)
        public
    {
        bytes memory bundle = _bundle(bound(length, 1, 3 * CHUNK));
        Case memory c = _demanded(bundle);
        uint256 count = (bundle.length + CHUNK - 1) / CHUNK;
        for (uint256 i = 0; i < count; ++i) {
            assertEq(uint8(_status(c)), uint8(Status.Demanded));
            _serveChunk(c, bundle, addmod(first, i, count));
        }
        assertEq(uint8(_status(c)), uint8(Status.Claimed));
    }

    // ── Not served ──────────────────────────────────────────────────────────────────────────────

    function test_voidClaim_paysWhoDemandedAndLetsAnyoneClaimAnew() public {
        Case memory c = _demanded(_bundle(CHUNK + 7));
        _serveChunk(c, _bundle(CHUNK + 7), 0);
        pass(terms.openingWindow);
        network.voidClaim(c.posting, c.sealing, c.claiming);
        (Status status, uint40 claimBy,) = network.jobState(c.id);
        assertEq(uint8(status), uint8(Status.Sealed));
        assertEq(claimBy, vm.getBlockTimestamp() + terms.claimWindow);
        assertEq(_balance(challenger), STAKE + terms.claimBond);
        assertEq(_balance(claimer), STAKE - terms.claimBond);
        assertEq(_locked(challenger) + _locked(claimer), 0);
        _claim(c, Outcome.Accept, 0);
        _finalize(c);
        _assertConserved();
    }

    function test_voidClaim_keepsTheBeaconThatTheChainLosesMeanwhile() public {
        Case memory c = _demanded(_bundle(10));
        vm.roll(vm.getBlockNumber() + 9000);
        pass(terms.openingWindow);
        network.voidClaim(c.posting, c.sealing, c.claiming);
        bytes32 beacon = c.claiming.beacon;
        _claim(c, Outcome.Accept, 0);
        assertEq(c.claiming.beacon, beacon);
    }

    function test_voidClaim_forgetsWhatWasServedOfTheClaimBefore() public {
        bytes memory bundle = _bundle(CHUNK + 7);
        Case memory c = _demanded(bundle);
        _serveChunk(c, bundle, 0);
        pass(terms.openingWindow);
        network.voidClaim(c.posting, c.sealing, c.claiming);
        _claimAs(c, _hash(bundle));
        _demand(c);
        _serveChunk(c, bundle, 1);
        assertEq(uint8(_status(c)), uint8(Status.Demanded), "chunk 0 is due again");
        _serveChunk(c, bundle, 0);
        assertEq(uint8(_status(c)), uint8(Status.Claimed));
    }

    function test_deadlineGuard_voidClaimRevertsBeforeOpenBy() public {
        Case memory c = _demanded(_bundle(10));
        (, uint40 openBy,) = network.jobState(c.id);
        vm.warp(openBy - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, openBy));
        network.voidClaim(c.posting, c.sealing, c.claiming);
    }

    // ── How often ───────────────────────────────────────────────────────────────────────────────

    function test_demand_revertsTwiceForOneClaim() public {
        bytes memory bundle = _bundle(10);
        Case memory c = _demanded(bundle);
        _serveChunk(c, bundle, 0);
        vm.expectRevert(abi.encodeWithSelector(ILedger.AlreadyServed.selector, c.id));
        network.demand(c.posting, c.sealing, c.claiming);
    }

    function test_demand_revertsAFourthTime() public {
        Case memory c = _demanded(_bundle(10));
        for (uint256 i = 0; i < 3; ++i) {
            pass(terms.openingWindow);
            network.voidClaim(c.posting, c.sealing, c.claiming);
            _claim(c, Outcome.Accept, 0);
            if (i < 2) _demand(c);
        }
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooManyDemands.selector, c.id));
        network.demand(c.posting, c.sealing, c.claiming);
        _finalize(c);
        _assertConserved();
    }

    function test_demand_revertsLateUnclaimedOrWithoutABond() public {
        Case memory c = _committed();
        _expectStatus(c, Status.Sealed, Status.Claimed);
        network.demand(c.posting, c.sealing, c.claiming);
        _claim(c, Outcome.Accept, 0);
        address poor = person("poor");
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StakeInsufficient.selector, poor, 0, terms.challengeBond)
        );
        vm.prank(poor);
        network.demand(c.posting, c.sealing, c.claiming);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.demand(c.posting, c.sealing, c.claiming);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    function _demanded(bytes memory bundle) private returns (Case memory c) {
        return _demandedAs(_hash(bundle));
    }

    function _demandedAs(bytes32 bundle) private returns (Case memory c) {
        c = _committed();
        _claimAs(c, bundle);
        _demand(c);
    }

    function _claimAs(Case memory c, bytes32 bundle) private {
        vm.recordLogs();
        vm.prank(claimer);
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, bundle, new bytes[](0));
        c.claiming = abi.decode(_logged(ILedger.Claimed.selector), (Claiming));
    }

    function _demand(Case memory c) private {
        vm.prank(challenger);
        network.demand(c.posting, c.sealing, c.claiming);
    }

    function _serveChunk(Case memory c, bytes memory bundle, uint256 index) private {
        (bytes[] memory chunks, bytes32[] memory hashes) = _chunks(bundle);
        network.serveBundle(c.posting, c.sealing, c.claiming, uint16(index), chunks[index], hashes);
    }

    function _expectChunk(Case memory c, uint16 index, bytes memory chunk, bytes32[] memory hashes)
        private
    {
        vm.expectRevert(abi.encodeWithSelector(ILedger.ChunkInvalid.selector, index));
        network.serveBundle(c.posting, c.sealing, c.claiming, index, chunk, hashes);
    }

    function _bundle(uint256 length) private pure returns (bytes memory bundle) {
        bundle = new bytes(length);
        for (uint256 i = 0; i < length; i += 997) {
            bundle[i] = bytes1(uint8(i / 997 + 1));
        }
    }

    function _hash(bytes memory bundle) private pure returns (bytes32) {
        (, bytes32[] memory hashes) = _chunks(bundle);
        return keccak256(abi.encodePacked(hashes));
    }

    function _chunks(bytes memory bundle)
        private
        pure
        returns (bytes[] memory chunks, bytes32[] memory hashes)
    {
        uint256 count = (bundle.length + CHUNK - 1) / CHUNK;
        chunks = new bytes[](count);
        hashes = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 end = (i + 1) * CHUNK < bundle.length ? (i + 1) * CHUNK : bundle.length;
            chunks[i] = _slice(bundle, i * CHUNK, end);
            hashes[i] = keccak256(chunks[i]);
        }
    }

    function _slice(bytes memory data, uint256 from, uint256 to)
        private
        pure
        returns (bytes memory part)
    {
        part = new bytes(to - from);
        for (uint256 i = 0; i < part.length; i += 32) {
            assembly ("memory-safe") {
                let word := mload(add(add(data, 32), add(from, i)))
                mstore(add(add(part, 32), i), word)
            }
        }
        // The last word may have brought what follows: clear it.
        uint256 rest = part.length % 32;
        if (rest != 0) {
            assembly ("memory-safe") {
                let at := add(add(part, 32), sub(mload(part), rest))
                mstore(at, and(mload(at), not(shr(mul(8, rest), not(0)))))
            }
        }
    }
}
