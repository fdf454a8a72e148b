// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ModelId, Posting} from "../interfaces/Types.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {Ledger} from "./Ledger.sol";

/// @notice The registry of models and the seats that workers hold for them; the doors are in Seats.
/// @dev Seats live in fixed slots: a draw costs one read a step and gains nothing from splitting stake. A slot
/// is used again only after its unbonding, so no draw of a live job can meet a stranger in it.
abstract contract Roster is Ledger {
    /// @dev What jobs need of a model; the rest is in the event of its registration. One slot. `committee` is
    /// non-zero iff the model is known. No text beyond `vocabulary` and `context` can be run.
    struct Model {
        uint32 slots;
        uint32 owners;
        uint96 seatStake;
        uint8 committee;
        uint32 vocabulary;
        uint32 context;
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
    mapping(ModelId => uint32[]) internal _freeSlots;
    mapping(ModelId => mapping(address owner => uint32)) internal _seatsOfOwner;

    function _knownModel(ModelId modelId) internal view returns (Model storage model) {
        model = _models[modelId];
        require(model.committee != 0, ModelUnknown(modelId));
    }

    function _activeAt(Seat storage seat, uint256 time) internal view returns (bool) {
        return DrawLib.isEligible(seat.owner, seat.activeFrom, seat.leftAt, time);
    }

    /// @dev The committee of a job.
    function _drawSeats(Posting memory posting, bytes32 draw)
        internal
        view
        returns (uint32[] memory seats, address[] memory owners)
    {
        return _drawSeats(posting, draw, _models[posting.quote.modelId].committee);
    }

    /// @dev Walks the slots that the draw names; skips the inactive, the inferencer's owner and repeats.
    function _drawSeats(Posting memory posting, bytes32 draw, uint256 wanted)
        internal
        view
        returns (uint32[] memory seats, address[] memory owners)
    {
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
}
