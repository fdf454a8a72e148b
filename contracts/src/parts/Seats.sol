// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../interfaces/IAdjudicator.sol";
import {IVeriLLM, ModelId, ModelSpec, Posting} from "../interfaces/IVeriLLM.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {Accounts} from "./Accounts.sol";

/// @notice The registry of models and the seats that workers take for them.
/// @dev Seats live in fixed slots: a draw costs one read a step and gains nothing from splitting stake. A slot
/// is used again only after its unbonding, so no draw of a live job can meet a stranger in it.
abstract contract Seats is Accounts {
    /// @dev What jobs need of a model; the rest is in the event of its registration. One slot. `committee` is
    /// non-zero iff the model is known.
    struct Model {
        uint32 slots;
        uint32 owners;
        uint96 seatStake;
        uint8 committee;
    }

    /// @dev Timestamps; a seat is active strictly after `activeFrom` and, once it left, until `leftAt`.
    struct Seat {
        address owner;
        uint40 activeFrom;
        uint40 leftAt;
        bool evicted;
        uint96 price;
    }

    mapping(ModelId => Model) internal _models;
    mapping(ModelId => mapping(uint32 slot => Seat)) internal _seats;
    mapping(ModelId => uint32[]) private _freeSlots;
    mapping(ModelId => mapping(address owner => uint32)) private _seatsOfOwner;

    /// @inheritdoc IVeriLLM
    function registerModel(ModelSpec calldata) external returns (ModelId modelId) {
        bytes memory encoded = msg.data[4:];
        uint96 seatStake;
        uint8 committee;
        (modelId, seatStake, committee) = IAdjudicator(ADJUDICATOR).registerModel(encoded);
        Model storage model = _models[modelId];
        require(model.committee == 0, ModelKnown(modelId));
        model.seatStake = seatStake;
        model.committee = committee;
        _emitRegistered(modelId, encoded);
    }

    /// @inheritdoc IVeriLLM
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

    /// @inheritdoc IVeriLLM
    function leave(ModelId modelId, uint32 seat) external {
        Seat storage taken = _seats[modelId][seat];
        require(taken.owner == msg.sender, SeatNotOwned(modelId, seat, msg.sender));
        _vacate(modelId, seat, taken);
        emit SeatLeft(modelId, seat, msg.sender, block.timestamp + UNBONDING);
    }

    /// @inheritdoc IVeriLLM
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

    /// @inheritdoc IVeriLLM
    function release(ModelId modelId, uint32 seat) external {
        Seat storage taken = _seats[modelId][seat];
        address owner = taken.owner;
        uint256 releasableAt = uint256(taken.leftAt) + UNBONDING;
        require(taken.leftAt != 0 && block.timestamp >= releasableAt, SeatStillBonded(releasableAt));
        if (!taken.evicted) _accounts[owner].staked -= _models[modelId].seatStake;
        delete _seats[modelId][seat];
        _freeSlots[modelId].push(seat);
        emit SeatReleased(modelId, seat, owner);
    }

    /// @inheritdoc IVeriLLM
    function seatOf(ModelId modelId, uint32 seat)
        external
        view
        returns (address owner, uint40 activeFrom, uint40 leftAt, uint96 price)
    {
        Seat storage taken = _seats[modelId][seat];
        return (taken.owner, taken.activeFrom, taken.leftAt, taken.price);
    }

    /// @inheritdoc IVeriLLM
    function slotsOf(ModelId modelId) external view returns (uint32 slots, uint32 owners) {
        Model storage model = _models[modelId];
        return (model.slots, model.owners);
    }

    // ── For jobs ────────────────────────────────────────────────────────────────────────────────

    function _knownModel(ModelId modelId) internal view returns (Model storage model) {
        model = _models[modelId];
        require(model.committee != 0, ModelUnknown(modelId));
    }

    function _activeAt(Seat storage seat, uint256 time) internal view returns (bool) {
        return DrawLib.isEligible(seat.owner, seat.activeFrom, seat.leftAt, time);
    }

    /// @dev Walks the slots that the draw names; skips the inactive, the inferencer's owner and repeats.
    function _drawSeats(Posting memory posting, bytes32 draw)
        internal
        view
        returns (uint32[] memory seats, address[] memory owners)
    {
        uint256 wanted = _models[posting.quote.modelId].committee;
        seats = new uint32[](wanted);
        owners = new address[](wanted);
        mapping(uint32 => Seat) storage slots = _seats[posting.quote.modelId];
        uint256 found = 0;
        for (uint256 j = 0; found < wanted && j < DrawLib.MAX_STEPS; ++j) {
            uint32 slot = uint32(DrawLib.slot(draw, j, posting.slots)); // below a uint32
            Seat storage seat = slots[slot];
            if (!_activeAt(seat, posting.postedAt)) continue;
            address owner = seat.owner;
            if (owner == posting.worker || DrawLib.isDrawn(owners, found, owner)) continue;
            seats[found] = slot;
            owners[found++] = owner;
        }
        require(found == wanted, DrawExhausted(found, wanted));
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
        if (free.length == 0) return model.slots++;
        slot = free[free.length - 1];
        free.pop();
    }

    function _vacate(ModelId modelId, uint32 slot, Seat storage seat) private {
        require(seat.leftAt == 0 && seat.owner != address(0), SeatNotActive(modelId, slot));
        seat.leftAt = _from(0);
        if (--_seatsOfOwner[modelId][seat.owner] == 0) --_models[modelId].owners;
    }
}
