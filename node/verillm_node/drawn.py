"""Which positions of a task the protocol asks its worker to open (docs/protocol.md §5, bundle 6).

Nothing else leaves a worker: states that nobody drew are work for nothing, and part of a prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from verillm.draw import checked_requests, draw, position_seed, positions
from verillm.model import ModelSpec
from verillm.records import record_hash
from verillm_node.errors import NotDrawn
from verillm_node.tasks import TaskRecord
from verillm_node.view import View


@dataclass(frozen=True, slots=True)
class Drawn:
    """Of one item: what is compared, and where states chose tokens."""

    compared: frozenset[int]
    generated: range

    def check(self, full: Sequence[int], final_only: Sequence[int]) -> None:
        """Raises `NotDrawn` where more is asked for."""
        beyond = set(full) - self.compared
        beyond |= {each for each in final_only if each not in self.generated} - self.compared
        if beyond:
            raise NotDrawn(min(beyond))


def drawn(view: View, spec: ModelSpec, own: TaskRecord, item: int) -> Drawn:
    """What of an own item the seal's draw names; raises `NotDrawn` for an unchecked one."""
    sealed = view.history.sealed
    if sealed is None or own.party is None or own.commitment is None:
        raise NotDrawn(item)
    posting, sealing = view.posting, view.sealing
    seed = draw(sealing.secret, posting.commitment, sealing.beacon)
    checked = checked_requests(seed, posting.job.requests, spec.checked_requests)
    numbers = dict(enumerate(checked)) if own.party else {each: each for each in checked}
    if item not in numbers or item >= len(own.commitment.leaves):
        raise NotDrawn(item)  # or of a task with fewer items than it should have
    leaf = own.commitment.leaves[item]
    if own.party:
        # A verifier's prompt is prompt‖output less its last token. Where the output begins it is
        # not told: at most so far back that every other request has one new token.
        prompt, new, others = leaf.prompt_tokens, 1, posting.job.requests - 1
        first = max(0, prompt - (sealing.inner.new_tokens - others))
    else:
        prompt, new = leaf.prompt_tokens, leaf.new_tokens
        first = prompt - 1
    stream = position_seed(record_hash(posting, sealing), sealed.block_hash)
    where = positions(stream, numbers[item], prompt, new, spec.positions)
    return Drawn(frozenset(where), range(first, prompt + new - 1))
