"""A world whose commitments can be opened: random states, verifiers with their own rounding."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tests.chain.conftest import Net
from tests.chain.world import Operator, Running, World
from tests.unit.verillm.builders import bf16, noisy
from verillm.chain.contract import Checked, Mined, Opening
from verillm.draw import checked_requests, draw, position_seed, positions
from verillm.model import CheckProfile, ModelSpec
from verillm.records import record_hash
from verillm.signing import task_hash
from verillm.statistics import States
from verillm.task import Inner, Task, inner_hash, verification_task
from verillm.trace import CommittedTrace, Trace, TraceItem, commit, open_positions, state_bytes
from verillm.types import Bits, Hash32


def widened(spec: ModelSpec, hidden: int, slice_dims: int, depth: int) -> ModelSpec:
    """The same model at another size."""
    layers = tuple(range(8, depth + 1, 8))
    profile: CheckProfile = replace(
        spec.profile, layers=(spec.profile.layers[0],) * (len(layers) + 1)
    )
    sizes = {"hidden": hidden, "slice_dims": slice_dims, "depth": depth}
    return replace(spec, committed_layers=layers, profile=profile, **sizes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Step:
    """One call of a public round."""

    name: str
    mined: Mined


class OpenWorld(World):
    """Everyone commits to real traces; `wrong` names parties whose states are another model's."""

    def __init__(self, net: Net, spec: ModelSpec) -> None:
        self.wrong: frozenset[int] = frozenset()
        self.runs: dict[bytes, list[CommittedTrace]] = {}
        super().__init__(net, spec)

    def _states(self, seed: bytes, count: int, party: int) -> tuple[Bits, Bits]:
        number = int.from_bytes(seed[:4], "big")  # one seed, one true run, whoever makes it
        rng = np.random.default_rng([number, party if party in self.wrong else 99])
        shape = self.spec.shape
        rows = rng.standard_normal((4096, shape.layers, shape.slice_dims), np.float32)[:count]
        finals = rng.standard_normal((4096, shape.hidden), np.float32)[:count]
        return noisy(bf16(rows), number + party), noisy(bf16(finals), number + 10 + party)

    def _run(self, party: int, task: Task, outputs: Sequence[Sequence[int]]) -> CommittedTrace:
        items = []
        for number, (item, output) in enumerate(zip(task.items, outputs, strict=True)):
            tokens = (*item.tokens, *output)
            slices, finals = self._states(item.seed, len(tokens) - 1, party)
            items.append(TraceItem(number, item.length, tokens, slices, finals))
        return commit(Trace(task_hash(task), tuple(items)), task)

    def inferred(self, task: Task, outputs: Sequence[Sequence[int]]) -> Inner:
        run = self._run(0, task, outputs)
        self.runs[task.task_id] = [run]
        return run.inner

    def verified(self, run: Running, k: int, member: Operator) -> Hash32:
        shown = self.checked(run)
        task = verification_task(
            run.secret,
            self.id_of(run),
            k,
            [(q, run.requests[q]) for q in shown],
            [run.outputs[q] for q in shown],
            member.address,
            self.model,
            run.job.deadline,
            run.lock,
            0,
            [2] * len(shown),
        )
        committed = self._run(k, task, [(1, 1)] * len(shown))
        self.runs[run.task.task_id][k:] = [committed]
        return inner_hash(committed.inner)

    def checked(self, run: Running) -> tuple[int, ...]:
        """The checked requests in drawn order."""
        hash_ = self.chain(self.client).block(run.posting.posted_block).hash
        seed = draw(run.secret, run.posting.commitment, hash_)
        return checked_requests(seed, run.job.requests, self.spec.checked_requests)

    def where(self, run: Running, request: int) -> tuple[int, ...]:
        """The challenged positions of a checked request, in drawn order."""
        seed = position_seed(record_hash(run.posting, run.sealing), run.claiming.beacon)
        lengths = (len(self.prompt), len(run.outputs[request]))
        return positions(seed, request, *lengths, self.spec.positions)

    def opening(self, run: Running, party: int, place: int, position: int) -> Opening:
        """One party's evidence at one position, as the contract takes it."""
        item = place if party else self.checked(run)[place]
        opened = open_positions(self.runs[run.task.task_id][party], item, [position], ())
        (entry,) = opened.entries
        assert entry.slices is not None
        return Opening(
            party, opened.inner, opened.leaf, opened.item_path, position, entry.token, entry.next,
            state_bytes(entry.slices), state_bytes(entry.final), entry.path,
        )  # fmt: skip

    def challenge(self, run: Running) -> list[Step]:
        """The whole public round: reveal, compare everything, adjudicate, settle."""
        auditor, record = self.auditor.account, (run.posting, run.sealing, run.claiming)
        steps = [Step("challenge", self.send(auditor, self.calls.challenge(*record)))]
        parties = range(self.spec.committee + 1)
        for place, request in enumerate(self.checked(run)):
            where = self.where(run, request)
            first = self.opening(run, 0, place, where[0])
            call = self.calls.reveal(*record, place, first.leaf, first.item_path)
            steps.append(Step("reveal", self.send(auditor, call)))
            lengths = Checked(place, len(self.prompt), len(run.outputs[request]))
            for index, position in enumerate(where):
                shown = [self.opening(run, party, place, position) for party in parties]
                call = self.calls.compare(*record, self.spec, lengths, index, shown)
                steps.append(Step("compare", self.send(auditor, call)))
        self.net.pass_time(3 * self.net.config.opening_window)
        steps.append(Step("adjudicate", self.send(auditor, self.calls.adjudicate(*record))))
        self.net.pass_time(self.net.config.dispute_window)
        steps.append(Step("settle", self.send(auditor, self.calls.settle(*record))))
        return steps

    def states(self, run: Running, party: int) -> list[States]:
        """What a party opens, for the Python reference."""
        found = []
        for place, request in enumerate(self.checked(run)):
            item = place if party else request
            where = tuple(sorted(self.where(run, request)))
            opened = open_positions(self.runs[run.task.task_id][party], item, where, ())
            slices = [entry.slices for entry in opened.entries if entry.slices is not None]
            finals = [entry.final for entry in opened.entries]
            found.append(States(where, np.stack(slices), np.stack(finals)))
        return found

    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of parties."""
        return list(combinations(range(self.spec.committee + 1), 2))
