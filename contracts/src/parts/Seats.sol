// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../interfaces/IAdjudicator.sol";
import {IVeriLLMCore} from "../interfaces/IVeriLLMCore.sol";
import {ModelId, ModelSpec} from "../interfaces/Types.sol";
import {Roster} from "./Roster.sol";

/// @notice The doors to the registry of models and seats.
abstract contract Seats is IVeriLLMCore, Roster {
    /// @dev Bounds the gas of `join` and `release`; whoever left many slots behind pays for them with many calls.
    uint256 private constant MAX_SLOTS_A_CALL = 32;

    /// @inheritdoc IVeriLLMCore
    function registerModel(ModelSpec calldata) external returns (ModelId modelId) {
        bytes memory encoded = msg.data[4:];
        Model memory needed;
        (modelId, needed.seatStake, needed.committee, needed.vocabulary, needed.context) =
            IAdjudicator(ADJUDICATOR).registerModel(encoded);
        require(_models[modelId].committee == 0, ModelKnown(modelId));
        _models[modelId] = needed;
        _emitRegistered(modelId, encoded);
    }

    /// @inheritdoc IVeriLLMCore
    function join(ModelId modelId, uint96 price) external returns (uint32 seat) {
        Model storage model = _knownModel(modelId);
        Account storage account = _accounts[msg.sender];
        uint256 bound = uint256(account.staked) + account.withdrawing;
        uint256 unstaked = account.balance > bound ? account.balance - bound : 0;
        require(
            model.seatStake <= unstaked, StakeInsufficient(msg.sender, unstaked, model.seatStake)
        );
        account.staked += model.seatStake;
        if (_seatsOfOwner[modelId][msg.sender]++ == 0) ++model.owners;
        seat = _takeSlot(modelId, model);
        _seats[modelId][seat] = Seat({
            owner: msg.sender, activeFrom: _from(0), leftAt: 0, evicted: false, price: price
        });
        emit SeatJoined(modelId, seat, msg.sender, price);
    }

    /// @inheritdoc IVeriLLMCore
    function leave(ModelId modelId, uint32 seat) external {
        Seat storage taken = _seats[modelId][seat];
        require(taken.owner == msg.sender, SeatNotOwned(modelId, seat, msg.sender));
        _vacate(modelId, seat, taken);
        emit SeatLeft(modelId, seat, msg.sender, block.timestamp + UNBONDING);
    }

    /// @inheritdoc IVeriLLMCore
    function evict(ModelId modelId, uint32 seat) external {
        Seat storage taken = _seats[modelId][seat];
        Account storage account = _accounts[taken.owner];
        require(account.balance < account.staked, SeatBacked(account.balance, account.staked));
        _vacate(modelId, seat, taken);
        // What no longer backs the seat is not held for it; locks and the delay of withdrawals stay.
        taken.evicted = true;
        account.staked -= _models[modelId].seatStake;
        emit SeatEvicted(modelId, seat, taken.owner, block.timestamp + UNBONDING);
    }

    /// @inheritdoc IVeriLLMCore
    function release(ModelId modelId, uint32 seat) external {
        Seat storage taken = _seats[modelId][seat];
        address owner = taken.owner;
        uint256 releasableAt = uint256(taken.leftAt) + UNBONDING;
        require(taken.leftAt != 0 && block.timestamp >= releasableAt, SeatStillBonded(releasableAt));
        if (!taken.evicted) _accounts[owner].staked -= _models[modelId].seatStake;
        delete _seats[modelId][seat];
        _freeSlots[modelId].push(seat);
        _shrink(modelId);
        emit SeatReleased(modelId, seat, owner);
    }

    /// @inheritdoc IVeriLLMCore
    function seatOf(ModelId modelId, uint32 seat)
        external
        view
        returns (address owner, uint40 activeFrom, uint40 leftAt, uint96 price)
    {
        Seat storage taken = _seats[modelId][seat];
        return (taken.owner, taken.activeFrom, taken.leftAt, taken.price);
    }

    /// @inheritdoc IVeriLLMCore
    function slotsOf(ModelId modelId) external view returns (uint32 slots, uint32 owners) {
        Model storage model = _models[modelId];
        return (model.slots, model.owners);
    }

    /// @dev `emit ModelRegistered(modelId, spec)` without an encoder of its own: the adjudicator made sure that the
    /// calldata is the encoding.
    function _emitRegistered(ModelId modelId, bytes memory encoded) private {
        bytes32 topic = ModelRegistered.selector;
        assembly ("memory-safe") {
            log2(add(encoded, 32), mload(encoded), topic, modelId)
        }
    }

    function _takeSlot(ModelId modelId, Model storage model) private returns (uint32 slot) {
        uint32[] storage free = _freeSlots[modelId];
        for (uint256 i = 0; i < MAX_SLOTS_A_CALL && free.length != 0; ++i) {
            slot = free[free.length - 1];
            free.pop();
            // It may have been cut off since, or cut off and taken again.
            if (slot < model.slots && _seats[modelId][slot].owner == address(0)) return slot;
        }
        return model.slots++;
    }

    /// @dev Cuts off empty slots at the end: a draw would only step over them, and give up where there are too many.
    function _shrink(ModelId modelId) private {
        Model storage model = _models[modelId];
        uint32 slots = model.slots;
        for (uint256 i = 0; i < MAX_SLOTS_A_CALL && slots != 0; ++i) {
            if (_seats[modelId][slots - 1].owner != address(0)) break;
            --slots;
        }
        model.slots = slots;
    }

    function _vacate(ModelId modelId, uint32 slot, Seat storage seat) private {
        require(seat.leftAt == 0 && seat.owner != address(0), SeatNotActive(modelId, slot));
        seat.leftAt = _from(0);
        if (--_seatsOfOwner[modelId][seat.owner] == 0) --_models[modelId].owners;
    }
}
