"""Models and seats: `Roster` and `Seats` of the contracts."""

from dataclasses import replace

from tests.reference.ledger import Ledger
from tests.reference.state import NO_SEAT, Model, Refused, require
from verillm.chain import events
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import SeatState
from verillm.draw import draw_seats
from verillm.errors import DrawExhausted
from verillm.model import ModelSpec, model_id
from verillm.records import Posting
from verillm.types import ChecksumAddress, Hash32, ModelId

SLOTS_A_CALL = 32
"""Slots that one call may look at to find a free one, or to cut empty ones off."""


class Roster(Ledger):
    """The registry of models and the seats that workers hold for them."""

    def register_model(self, spec: ModelSpec) -> None:
        """Register a model whose bounds are sane."""
        identity = model_id(spec)
        require(identity not in self.state.models, "ModelKnown")
        self.state.models[identity] = Model(spec)
        self.events.append(events.ModelRegistered(identity, spec))

    def join(self, model: ModelId, price: int) -> None:
        """Take a seat: active strictly after this block's time."""
        known = self._known(model)
        account = self.account(self.sender)
        unstaked = max(0, account.balance - account.staked - account.withdrawing)
        stake = known.spec.seat_stake
        require(stake <= unstaked, "StakeInsufficient")
        self._put(self.sender, staked=account.staked + stake)
        owners = known.owners + (not self._holds_seat(model, self.sender))
        slot, slots, rest = self._free_slot(model, known)
        self.state.models[model] = replace(known, slots=slots, owners=owners, free=rest)
        self.state.seats[model, slot] = SeatState(self.sender, self.now, 0, price)
        self.events.append(events.SeatJoined(model, slot, self.sender, price))

    def _free_slot(self, model: ModelId, known: Model) -> tuple[int, int, tuple[int, ...]]:
        """The slot to take, the slots that there are then, and the free ones left."""
        rest, left = known.free, SLOTS_A_CALL
        while rest and left:
            *before, slot = rest
            rest, left = tuple(before), left - 1
            if slot < known.slots and (model, slot) not in self.state.seats:
                return slot, known.slots, rest
        return known.slots, known.slots + 1, rest

    def leave(self, model: ModelId, seat: int) -> None:
        """Leave a seat; its stake stays bonded."""
        taken = self.seat_of(model, seat)
        require(taken.owner == self.sender, "SeatNotOwned")
        self._vacate(model, seat)
        releasable = self.now + self.config.unbonding
        self.events.append(events.SeatLeft(model, seat, self.sender, releasable))

    def evict(self, model: ModelId, seat: int) -> None:
        """Put out a seat that its owner's balance no longer covers; frees its stake at once."""
        owner = self.seat_of(model, seat).owner
        account = self.account(owner)
        require(account.balance < account.staked, "SeatBacked")
        self._vacate(model, seat)
        self.state.evicted[model, seat] = True
        self._put(owner, staked=account.staked - self._known(model).spec.seat_stake)
        releasable = self.now + self.config.unbonding
        self.events.append(events.SeatEvicted(model, seat, owner, releasable))

    def release(self, model: ModelId, seat: int) -> None:
        """Free the slot, and the stake unless an eviction did."""
        taken = self.seat_of(model, seat)
        releasable = taken.left_at + self.config.unbonding
        require(taken.left_at > 0 and self.now >= releasable, "SeatStillBonded")
        known = self._known(model)
        if not self.state.evicted.pop((model, seat), False):
            staked = self.account(taken.owner).staked - known.spec.seat_stake
            self._put(taken.owner, staked=staked)
        del self.state.seats[model, seat]
        slots, left = known.slots, SLOTS_A_CALL
        while left and slots and (model, slots - 1) not in self.state.seats:
            slots, left = slots - 1, left - 1
        self.state.models[model] = replace(known, free=(*known.free, seat), slots=slots)
        self.events.append(events.SeatReleased(model, seat, taken.owner))

    # ── Reads ───────────────────────────────────────────────────────────────────────────────────
    def seat_of(self, model: ModelId, seat: int) -> SeatState:
        """A seat of a model."""
        return self.state.seats.get((model, seat), NO_SEAT)

    def slots_of(self, model: ModelId) -> tuple[int, int]:
        """Slots and distinct owners of a model."""
        known = self.state.models.get(model)
        return (0, 0) if known is None else (known.slots, known.owners)

    # ── For what builds on it ───────────────────────────────────────────────────────────────────
    def _known(self, model: ModelId) -> Model:
        require(model in self.state.models, "ModelUnknown")
        return self.state.models[model]

    def _vacate(self, model: ModelId, seat: int) -> None:
        taken = self.seat_of(model, seat)
        require(taken.left_at == 0 and taken.owner != ZERO_ADDRESS, "SeatNotActive")
        self.state.seats[model, seat] = replace(taken, left_at=self.now)
        if not self._holds_seat(model, taken.owner):
            known = self._known(model)
            self.state.models[model] = replace(known, owners=known.owners - 1)

    def _holds_seat(self, model: ModelId, owner: ChecksumAddress) -> bool:
        return any(
            where == model and seat.owner == owner and seat.left_at == 0
            for (where, _), seat in self.state.seats.items()
        )

    def _active_at(self, seat: SeatState, time: int) -> bool:
        """Joined strictly before, and not gone before: who leaves at `time` is still drawn."""
        stays = seat.left_at == 0 or seat.left_at >= time
        return seat.owner != ZERO_ADDRESS and seat.active_from < time and stays

    def drawn_seats(
        self, posting: Posting, seed: Hash32, size: int = 0
    ) -> list[tuple[int, ChecksumAddress]]:
        """The committee of a posted job, in drawn order; with `size`, and who comes after it."""
        model = posting.quote.model_id

        def eligible(slot: int) -> str | None:
            seat = self.seat_of(model, slot)
            return seat.owner if self._active_at(seat, posting.posted_at) else None

        size = size or self._known(model).spec.committee
        try:
            drawn = draw_seats(seed, posting.slots, eligible, posting.worker, size)
        except DrawExhausted:
            raise Refused("DrawExhausted") from None
        return [(slot, ChecksumAddress(owner)) for slot, owner in drawn]  # type: ignore[arg-type]
