// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../../src/interfaces/IAdjudicator.sol";
import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/IVeriLLMCore.sol";
import "../../src/interfaces/Types.sol";
import {Network} from "../Network.sol";
import {Vm} from "../Test.sol";

/// @notice Emits the plain event that VeriLLM writes from its calldata.
contract PlainRegistry {
    event ModelRegistered(ModelId indexed modelId, ModelSpec spec);

    function registerModel(ModelSpec calldata spec) external {
        emit ModelRegistered(ModelId.wrap(keccak256(abi.encode(spec))), spec);
    }
}

contract SeatsTest is Network {
    // ── Models ──────────────────────────────────────────────────────────────────────────────────

    function test_fuzz_registerModel_emitsWhatItsPlainTwinEmits(
        string calldata name,
        uint32[] calldata endTokens,
        uint96 stake
    ) public {
        ModelSpec memory spec = _spec();
        spec.name = name;
        spec.endTokens = endTokens;
        spec.seatStake = stake == 0 ? 1 : stake;
        PlainRegistry plain = new PlainRegistry();
        vm.recordLogs();
        ModelId id = network.registerModel(spec);
        plain.registerModel(spec);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        assertEq(ModelId.unwrap(id), keccak256(abi.encode(spec)));
        assertEq(logs[0].data, logs[1].data);
        assertEq(logs[0].topics.length, logs[1].topics.length);
        for (uint256 i = 0; i < 2; ++i) {
            assertEq(logs[0].topics[i], logs[1].topics[i]);
        }
    }

    function test_registerModel_revertsTwice() public {
        vm.expectRevert(abi.encodeWithSelector(ILedger.ModelKnown.selector, modelId));
        network.registerModel(_spec());
    }

    function test_registerModel_revertsForAnotherEncoding() public {
        ModelSpec memory spec = _spec();
        spec.name = "other";
        bytes memory padded = abi.encodeCall(IVeriLLMCore.registerModel, (spec));
        (bool done, bytes memory result) =
            address(network).call(abi.encodePacked(padded, bytes32(0)));
        assertFalse(done);
        assertEq(bytes32(bytes4(result)), bytes32(IAdjudicator.SpecNotCanonical.selector));
    }

    function test_registerModel_revertsOutOfBounds() public {
        ModelSpec memory spec = _spec();
        spec.hidden = 72;
        _expectBounds(spec, "hidden");
        spec.hidden = 16_400;
        _expectBounds(spec, "hidden");
        spec = _spec();
        spec.sliceDims = 80;
        _expectBounds(spec, "sliceDims");
        spec = _spec();
        spec.committee = 2;
        _expectBounds(spec, "committee");
        spec.committee = 9;
        _expectBounds(spec, "committee");
        spec = _spec();
        spec.checkedRequests = 17;
        _expectBounds(spec, "checkedRequests");
        spec = _spec();
        spec.positions = 65;
        _expectBounds(spec, "positions");
        spec.positions = 3;
        _expectBounds(spec, "positions");
        spec = _spec();
        spec.committedLayers[0] = 9;
        _expectBounds(spec, "committedLayers");
        spec = _spec();
        spec.committedLayers = new uint16[](33);
        _expectBounds(spec, "committedLayers");
        spec = _spec();
        spec.profile = _profile(3);
        _expectBounds(spec, "profile.layers");
        spec = _spec();
        spec.seatStake = 0;
        _expectBounds(spec, "seatStake");
    }

    /// @dev At their bounds: one fewer or one more of anything is refused below.
    function _many() private view returns (ModelSpec memory spec) {
        spec = _spec();
        spec.profile.manyPositions = 4;
        spec.profile.meanRefundMany = spec.profile.meanRefund;
        spec.profile.meanSlashMany = spec.profile.meanSlash;
    }

    function test_registerModel_takesMeansForManyPositionsUpToThoseForFew() public {
        ModelSpec memory spec = _many();
        spec.name = "many";
        adjudicator.registerModel(abi.encode(spec));
        (spec.profile.meanRefundMany, spec.profile.meanSlashMany) = (1_000_000, 1_000_000);
        adjudicator.registerModel(abi.encode(spec));
    }

    function test_registerModel_revertsForALooseOrTightProfile() public {
        ModelSpec memory spec = _spec();
        spec.profile.meanRefund = 999_999;
        _expectBounds(spec, "meanRefund");
        spec = _spec();
        spec.profile.meanSlash = 2_400_001;
        _expectBounds(spec, "meanSlash");
        spec = _spec();
        spec.profile.meanSlash = spec.profile.meanRefund - 1;
        _expectBounds(spec, "meanSlash");
        spec = _spec();
        spec.profile.overSlash = 5;
        _expectBounds(spec, "overSlash");
        spec = _spec();
        spec.profile.overRefund = 3;
        _expectBounds(spec, "overRefund");
        spec = _spec();
        spec.profile.minPositions = 9;
        _expectBounds(spec, "minPositions");
        spec = _many();
        spec.profile.manyPositions = 5;
        _expectBounds(spec, "manyPositions");
        spec = _many();
        spec.profile.meanRefundMany = 999_999;
        _expectBounds(spec, "meanRefundMany");
        spec = _many();
        spec.profile.meanRefundMany = spec.profile.meanRefund + 1;
        _expectBounds(spec, "meanRefundMany");
        spec = _many();
        spec.profile.meanSlashMany = spec.profile.meanRefundMany - 1;
        _expectBounds(spec, "meanSlashMany");
        spec = _many();
        spec.profile.meanSlashMany = spec.profile.meanSlash + 1;
        _expectBounds(spec, "meanSlashMany");
        spec = _many();
        (spec.profile.manyPositions, spec.profile.meanSlashMany) = (0, 0);
        _expectBounds(spec, "meanRefundMany");
        spec = _many();
        (spec.profile.manyPositions, spec.profile.meanRefundMany) = (0, 0);
        _expectBounds(spec, "meanSlashMany");
        spec = _spec();
        spec.profile.layers[1].scale = 41;
        _expectBounds(spec, "scale");
        spec = _spec();
        spec.profile.layers[1].med[2] = 0;
        _expectBounds(spec, "med");
        spec = _spec();
        spec.profile.layers[1].med[2] = 50_001;
        _expectBounds(spec, "med");
        spec = _spec();
        spec.profile.layers[1].cap[0] = 500_001;
        _expectBounds(spec, "cap");
        spec = _spec();
        spec.profile.marginMaxRefund = spec.profile.marginMaxSlash + 1;
        _expectBounds(spec, "marginMaxRefund");
        spec = _spec();
        spec.profile.massEpsilon = 100_001;
        _expectBounds(spec, "massEpsilon");
    }

    // ── Seats ───────────────────────────────────────────────────────────────────────────────────

    function test_join_revertsForAnUnknownModel() public {
        ModelId unknown = ModelId.wrap("nothing");
        vm.expectRevert(abi.encodeWithSelector(ILedger.ModelUnknown.selector, unknown));
        network.join(unknown, PRICE);
    }

    function test_join_takesStakeUntilNoneIsLeft() public {
        vm.startPrank(workers[0]);
        for (uint256 i = 0; i < 9; ++i) {
            network.join(modelId, PRICE);
        }
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StakeInsufficient.selector, workers[0], 0, SEAT)
        );
        network.join(modelId, PRICE);
        vm.stopPrank();
        (uint32 slots, uint32 owners) = network.slotsOf(modelId);
        assertEq(slots, 14);
        assertEq(owners, 5, "an owner counts once");
    }

    function test_release_freesTheSlotAfterUnbondingOnly() public {
        vm.prank(workers[0]);
        network.leave(modelId, 0);
        uint256 at = vm.getBlockTimestamp() + terms.unbonding;
        vm.warp(at - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.SeatStillBonded.selector, at));
        network.release(modelId, 0);
        vm.prank(workers[1]);
        assertEq(network.join(modelId, PRICE), 5, "a new slot");
        vm.warp(at);
        network.release(modelId, 0);
        (,, uint96 staked,,,) = network.accountOf(workers[0]);
        assertEq(staked, 0);
        vm.prank(workers[1]);
        assertEq(network.join(modelId, PRICE), 0, "the slot again");
        vm.expectRevert();
        network.release(modelId, 0);
    }

    function test_release_cutsOffEmptySlotsAtTheEnd() public {
        vm.startPrank(workers[0]);
        for (uint256 i = 0; i < 6; ++i) {
            network.join(modelId, PRICE);
        }
        for (uint32 seat = 5; seat < 11; ++seat) {
            network.leave(modelId, seat);
        }
        vm.stopPrank();
        pass(terms.unbonding);
        uint8[6] memory order = [7, 5, 6, 9, 10, 8];
        uint8[6] memory left = [11, 11, 11, 11, 9, 5];
        for (uint256 i = 0; i < 6; ++i) {
            network.release(modelId, order[i]);
            (uint32 slots,) = network.slotsOf(modelId);
            assertEq(slots, left[i], "slots");
        }
        // What was cut off is in the list of free slots still: it is not handed out twice, nor out of bounds.
        for (uint32 seat = 5; seat < 12; ++seat) {
            vm.prank(workers[1]);
            assertEq(network.join(modelId, PRICE), seat);
        }
    }

    /// @notice Whoever joins, leaves and releases in whatever order: no slot has two owners, none lies outside.
    function test_fuzz_slots_areEachOwnedOnce(uint256 seed) public {
        uint32[] memory held = new uint32[](8);
        bool[] memory taken = new bool[](8);
        for (uint256 step = 0; step < 24; ++step) {
            uint256 i = uint256(keccak256(abi.encode(seed, step))) % 8;
            vm.prank(workers[2]);
            if (!taken[i]) {
                held[i] = network.join(modelId, PRICE);
                for (uint256 k = 0; k < 8; ++k) {
                    assertTrue(k == i || !taken[k] || held[k] != held[i], "one owner a slot");
                }
            } else {
                network.leave(modelId, held[i]);
                pass(terms.unbonding);
                network.release(modelId, held[i]);
            }
            taken[i] = !taken[i];
            (uint32 slots,) = network.slotsOf(modelId);
            for (uint256 k = 0; k < 8; ++k) {
                assertTrue(!taken[k] || held[k] < slots, "within the slots");
            }
        }
    }

    function test_leave_revertsForStrangersAndTwice() public {
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.SeatNotOwned.selector, modelId, 0, workers[1])
        );
        vm.prank(workers[1]);
        network.leave(modelId, 0);
        vm.startPrank(workers[0]);
        network.leave(modelId, 0);
        vm.expectRevert(abi.encodeWithSelector(ILedger.SeatNotActive.selector, modelId, 0));
        network.leave(modelId, 0);
        vm.stopPrank();
    }

    function test_evict_putsOutASeatWhoseStakeIsGone() public {
        vm.expectRevert(abi.encodeWithSelector(ILedger.SeatBacked.selector, STAKE, SEAT));
        network.evict(modelId, 0);
        vm.startPrank(workers[0]);
        for (uint256 i = 0; i < 9; ++i) {
            network.join(modelId, PRICE);
        }
        vm.stopPrank();
        Case memory c = _sealed(1);
        _claim(c, Outcome.Slash, 1);
        _finalize(c);
        network.evict(modelId, 0);
        (uint96 balance,, uint96 staked,,,) = network.accountOf(workers[0]);
        assertEq(balance, STAKE - LOCK);
        assertEq(staked, 900 ether);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.SeatBacked.selector, STAKE - LOCK, 900 ether)
        );
        network.evict(modelId, 5);
        pass(terms.unbonding);
        network.release(modelId, 0);
        (,, staked,,,) = network.accountOf(workers[0]);
        assertEq(staked, 900 ether, "not twice");
    }

    function test_drawOf_equalsWhatSealDemands(bytes32 seed) public {
        vm.setBlockhash(vm.getBlockNumber() - 1, seed);
        Case memory c = _sealed(1);
        (uint32[] memory seats, address[] memory owners,) =
            adjudicator.drawOf(address(network), c.posting, SECRET, c.sealing.beacon);
        for (uint256 i = 0; i < 3; ++i) {
            assertEq(c.sealing.committee[i].seat, seats[i]);
            assertEq(c.sealing.committee[i].owner, owners[i]);
        }
    }

    function _expectBounds(ModelSpec memory spec, bytes32 field) private {
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.ProfileOutOfBounds.selector, field));
        network.registerModel(spec);
    }
}
