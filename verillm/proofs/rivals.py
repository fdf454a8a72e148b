"""Head rows with their proofs, and the rival that beats a token by most."""

from dataclasses import dataclass, field

import numpy as np

from verillm.errors import InputError
from verillm.hashing import u32
from verillm.head import HeadRows
from verillm.merkle import LeafKind, Tree, leaf_hash
from verillm.proofs.margins import Margin, margin_of
from verillm.proofs.shown import Rival, Row
from verillm.sampling import scores, truncates
from verillm.statistics import to_floats
from verillm.task import Item
from verillm.trace import state_bytes
from verillm.types import PPM, Bits, Hash32


@dataclass(slots=True)
class ProvenHead:
    """Head rows under the model's head root; the tree is built when a first row is shown."""

    rows: HeadRows
    _tree: Tree | None = field(default=None)

    def bits(self, entry: int) -> Bits:
        """One row uint16 [hidden]."""
        bits: Bits = self.rows.rows(entry, entry + 1)[0]
        return bits

    def row(self, entry: int) -> Row:
        """One row with its proof."""
        return Row(state_bytes(self.bits(entry)), self.tree.proof(entry))

    @property
    def tree(self) -> Tree:
        """The tree under the head root."""
        if self._tree is None:
            every = self.rows.rows(0, self.rows.vocabulary)
            self._tree = Tree([row_leaf(entry, bits) for entry, bits in enumerate(every)])
        return self._tree

    def rival(self, token: int, entry: int) -> Rival:
        """Both rows as a proof brings them."""
        return Rival(entry, self.row(token), self.row(entry))

    def margin(
        self, final: Bits, item: Item, position: int, token: int, rival: int
    ) -> Margin | None:
        """How one rival stands to a token; None where the Prover refuses the numbers."""
        rows = (self.bits(token), self.bits(rival))
        temperature = item.sampling.temperature
        try:
            return margin_of(final, *rows, item.seed, position, token, rival, temperature)
        except InputError:
            return None

    def best(self, final: Bits, item: Item, position: int, token: int, tau: int) -> int | None:
        """The entry that beats a token by most, of those that count against it.

        By float32, so that the margin itself is to be computed; None for a state without finite
        logits, or where none counts.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self.rows.logits(to_floats(final)[None])[0]
        if not np.isfinite(logits).all():
            return None
        ranked = scores(logits, item.sampling, item.seed, position).copy()
        ranked[token] = -np.inf
        if truncates(item.sampling):
            ranked[logits < logits[token] + np.float32(tau / PPM)] = -np.inf
        best = int(np.argmax(ranked))
        return best if np.isfinite(ranked[best]) else None


def row_leaf(entry: int, bits: Bits) -> Hash32:
    """The leaf of one head row."""
    return leaf_hash(LeafKind.HEAD, u32(entry) + state_bytes(bits))
