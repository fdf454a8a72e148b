"""A world with re-verification: one member first, three anew, all of them on the chain."""

from dataclasses import dataclass

import numpy as np

from tests.chain.rounds import OpenWorld
from tests.chain.world import Operator, Running
from tests.unit.verillm.builders import bf16, noisy
from verillm.appeal import Content, contents_of, recommitted, work
from verillm.chain.appeals import Concluded, Convened, RoundStarted
from verillm.chain.contract import Checked, Mined, Opening
from verillm.chain.events import events_of
from verillm.draw import position_seed, positions
from verillm.records import Claiming, Posting, Sealing, record_hash
from verillm.signing import task_hash
from verillm.trace import CommittedTrace, Trace, TraceItem, open_positions, state_bytes
from verillm.types import Bits


@dataclass(frozen=True)
class Second:
    """The round over the new committee: the values that it runs over, and who opens what."""

    sealing: Sealing
    claiming: Claiming
    runs: tuple[CommittedTrace, ...]


class AppealWorld(OpenWorld):
    """`wrong` parties share one other model; new members are the parties 101, 102, …"""

    def _states(self, seed: bytes, count: int, party: int) -> tuple[Bits, Bits]:
        number = int.from_bytes(seed[:4], "big")
        rng = np.random.default_rng([number, 7 if party in self.wrong else 99])
        shape = self.spec.shape
        rows = rng.standard_normal((4096, shape.layers, shape.slice_dims), np.float32)[:count]
        finals = rng.standard_normal((4096, shape.hidden), np.float32)[:count]
        return noisy(bf16(rows), number + party), noisy(bf16(finals), number + 10 + party)

    def contents(self, run: Running) -> tuple[Content, ...]:
        return contents_of(run.requests, run.outputs, run.task.task_id, self.checked(run))

    def record(self, run: Running) -> tuple[Posting, Sealing, Claiming]:
        return run.posting, run.sealing, run.claiming

    def reverify(self, run: Running) -> Mined:
        call = self.calls.reverify(*self.record(run), self.contents(run))
        return self.send(self.auditor.account, call)

    def convene(self, run: Running) -> Convened:
        mined = self.send(self.auditor.account, self.calls.convene(*self.record(run)))
        (convened,) = (each for each in events_of(mined) if isinstance(each, Convened))
        return convened

    def recommit(self, run: Running, convened: Convened) -> list[CommittedTrace]:
        """Every new member commits to its own run of what the chain shows."""
        shown = list(zip(self.checked(run), self.contents(run), strict=True))
        made = []
        for index, member in enumerate(convened.committee):
            task = work(
                run.secret, self.id_of(run), index, member.owner, self.model, shown,
                convened.commit_by,
            )  # fmt: skip
            items = []
            for number, item in enumerate(task.items):
                tokens = (*item.tokens, 1)
                slices, finals = self._states(item.seed, len(tokens) - 1, 101 + index)
                items.append(TraceItem(number, item.length, tokens, slices, finals))
            made.append(recommitted(Trace(task_hash(task), tuple(items)), task))
            operator = self.operator(member.owner)
            call = self.calls.recommit(self.id_of(run), index, made[-1].inner)
            self.send(operator.account, call)
        return made

    def operator(self, owner: str) -> Operator:
        (found,) = (each for each in self.workers if each.address == owner)
        return found

    def start(self, run: Running, made: list[CommittedTrace]) -> Second:
        mined = self.send(self.auditor.account, self.calls.start_round(*self.record(run)))
        (started,) = (each for each in events_of(mined) if isinstance(each, RoundStarted))
        first = self.runs[run.task.task_id]
        claiming = Claiming(
            "0x" + "00" * 20, 0, 0, 0, bytes(32), started.beacon  # type: ignore[arg-type]
        )  # fmt: skip
        return Second(started.sealing, claiming, (first[0], *made, *first[1:]))

    def open(self, run: Running, second: Second) -> None:
        """Reveals and compares everything, pair by pair, as wide rounds must."""
        sender, record = self.auditor.account, (run.posting, second.sealing, second.claiming)
        seed = position_seed(record_hash(run.posting, second.sealing), second.claiming.beacon)
        for place, request in enumerate(self.checked(run)):
            lengths = (len(self.prompt), len(run.outputs[request]))
            where = positions(seed, request, *lengths, self.spec.positions)
            first = self._shown(run, second, 0, place, where[0])
            call = self.calls.reveal(*record, place, first.leaf, first.item_path)
            self.send(sender, call)
            for index, position in enumerate(where):
                shown = [
                    self._shown(run, second, party, place, position)
                    for party in range(len(second.runs))
                ]
                checked = Checked(place, *lengths)
                call = self.calls.compare(*record, self.spec, checked, index, shown)
                self.send(sender, call)

    def _shown(
        self, run: Running, second: Second, party: int, place: int, position: int
    ) -> Opening:
        item = place if party else self.checked(run)[place]
        opened = open_positions(second.runs[party], item, [position], ())
        (entry,) = opened.entries
        assert entry.slices is not None
        return Opening(
            party, opened.inner, opened.leaf, opened.item_path, position, entry.token, entry.next,
            state_bytes(entry.slices), state_bytes(entry.final), entry.path,
        )  # fmt: skip

    def conclude(self, run: Running) -> Concluded:
        """At once where nobody has other states; else when openings are due."""
        if self.wrong:
            self.net.pass_time(self.net.config.opening_window)
        mined = self.send(self.auditor.account, self.calls.conclude(*self.record(run)))
        (concluded,) = (each for each in events_of(mined) if isinstance(each, Concluded))
        return concluded

    def appeal(self, run: Running) -> Concluded:
        """The whole of it, with everybody there."""
        self.reverify(run)
        self.net.pass_time(1)
        made = self.recommit(run, self.convene(run))
        self.net.pass_time(1)
        self.open(run, self.start(run, made))
        return self.conclude(run)
