"""Whether tokens follow from the verifiers' states: margins and the nucleus (docs/protocol.md §7).

Off chain: it needs all head rows. The inferencer's own states are never used: they can be nudged
so that every forged token wins.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verillm.errors import EvidenceError
from verillm.model import CheckProfile
from verillm.request import Sampling
from verillm.sampling import gumbel, probabilities, truncates, words
from verillm.statistics import to_floats
from verillm.types import PPM, Bits, Floats, Hash32, Mask, Outcome, Reason

MEAN_OVER = 64
"""A shorter output's mean margin is taken as if the tokens that it lacks had none."""
Vote = tuple[int, int, bool]
"""Margin in the refund and in the slash tier (ppm), and whether the token is outside."""
NO_RIVAL = 1_000 * PPM
"""Lead of a token that has no rival, and the largest."""
_ROWS = 32
"""States whose logits are held at once."""
_G_MAX = gumbel(np.array([0xFFFFFFFF], np.uint32))[0]
_FIRST_LOOK = 32
_SORTED = 1024


class Head(Protocol):
    """The rows that turn final states into logits."""

    @property
    def vocabulary(self) -> int:
        """Rows."""
        ...

    def logits(self, finals: Floats) -> Floats:
        """float32 [n, hidden] → float32 [n, vocabulary]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """The output of one checked request, and the states that each trusted verifier has of it.

    `finals`: per verifier uint16 [N, hidden], of positions P-1..P+N-2.
    """

    prompt_tokens: int
    output: tuple[int, ...]
    sampling: Sampling
    seed: Hash32
    finals: tuple[Bits, ...]


@dataclass(frozen=True, slots=True)
class TokenStatistics:
    """Margins in ppm of a logit, one per generated token: how far it loses against its best rival.

    `margins` counts every rival that was surely kept (refund tier), `margins_above` only those with
    a logit clearly above the token's (slash tier); `outside` are the indices outside the nucleus.
    """

    margins: tuple[int, ...]
    margins_above: tuple[int, ...]
    outside: tuple[int, ...]

    @property
    def mean(self) -> int:
        """Mean margin of the refund tier, ppm (floor), over at least `MEAN_OVER` tokens.

        One token in a hundred of an honest output loses by a little; over five tokens that alone
        would be a mean that no threshold can tell from a cheat's. Over 32, one honest answer of
        fewer than 64 tokens in two hundred was refused for one loss of 0.4 logits.
        """
        return sum(self.margins) // max(len(self.margins), MEAN_OVER)


@dataclass(frozen=True, slots=True)
class Borders:
    """A profile's tolerances in the units of the comparison: mass and logits."""

    epsilon: float
    tau: float

    @classmethod
    def of(cls, profile: CheckProfile) -> "Borders":
        """From ppm."""
        return cls(profile.mass_epsilon / PPM, profile.logit_tau / PPM)


@dataclass(frozen=True, slots=True, eq=False)
class Noisy:
    """Scores of one state, entry by entry; `verillm.sampling.scores` computes all of them.

    Noise is the costly part, and bounded: an entry whose logit and the largest noise stay below a
    score that is already reached cannot be the best (as in `verillm.engine.sampler`).
    """

    logits: Floats
    sampling: Sampling
    seed: Hash32
    position: int

    def at(self, ids: NDArray[np.intp]) -> Floats:
        """Scores of some entries."""
        if self.sampling.temperature == 0:
            return self.logits[ids]
        noise = gumbel(words(self.seed, self.position, ids))
        return self.logits[ids] + self._temperature * noise

    def best(self, ids: NDArray[np.intp]) -> float:
        """The largest score of some entries, at least one."""
        if len(ids) > _FIRST_LOOK:
            logits = self.logits[ids]
            reached = self.at(ids[np.argpartition(logits, -_FIRST_LOOK)[-_FIRST_LOOK:]]).max()
            ids = ids[logits + self._temperature * _G_MAX >= reached]
        return float(self.at(ids).max())

    @property
    def _temperature(self) -> np.float32:
        return np.float32(self.sampling.temperature / PPM)


def token_statistics(
    requests: Sequence[Generated], head: Head, profile: CheckProfile
) -> TokenStatistics:
    """Margins of all generated tokens, each the one that a majority of the verifiers reaches.

    Not of their averaged states: one verifier's garbage at one position, which the comparison of
    states tolerates, would move the average by a third of it, against an honest token or for a
    forged one. States without finite logits abstain; EvidenceError if no majority is left.
    """
    return collected(
        majority(cast)
        for request in requests
        for cast in zip(
            *(votes(request, finals, head, profile) for finals in request.finals), strict=True
        )
    )


def votes(
    request: Generated, finals: Bits, head: Head, profile: CheckProfile
) -> tuple[Vote | None, ...]:
    """What one verifier's states uint16 [N, hidden] say of each token of an output; None where
    they have no finite logits.
    """
    if len(request.output) and max(request.output) >= head.vocabulary:
        raise EvidenceError(Reason.EVIDENCE_MISSING, "a token without a head row")
    return tuple(_votes(request, to_floats(finals), head, Borders.of(profile)))


def averaged_leads(request: Generated, head: Head, profile: CheckProfile) -> tuple[int, ...]:
    """By how much each token's score leads its best surely kept rival's, ppm of a logit, below 0
    where it loses; by the average of the verifiers' logits, without tokens where it is not finite.

    Honest verifiers' noise averages out, but one liar moves all of it: leads may say whose jobs to
    challenge together (`verillm.sequential`), and convict nobody.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        states: Floats = np.mean([to_floats(bits) for bits in request.finals], axis=0)
    borders = Borders.of(profile)
    return tuple(
        _lead(Noisy(logits, request.sampling, request.seed, position), token, borders)
        for logits, token, position in _logits(request, states, head)
        if np.isfinite(logits).all()
    )


def majority(cast: Sequence[Vote | None]) -> Vote:
    """The largest margins that more than half of the verifiers reach, and whether so many say
    outside; EvidenceError if so many do not say anything.
    """
    needed = len(cast) // 2 + 1
    given = [vote for vote in cast if vote is not None]
    if len(given) < needed:
        raise EvidenceError(Reason.EVIDENCE_MISSING, "too few verifiers' states give logits")
    reached, reached_above = (
        sorted((vote[tier] for vote in given), reverse=True)[needed - 1] for tier in (0, 1)
    )
    return reached, reached_above, sum(vote[2] for vote in given) >= needed


def collected(found: Iterable[Vote]) -> TokenStatistics:
    """The statistics of all tokens' votes."""
    all_votes = tuple(found)
    return TokenStatistics(
        tuple(margin for margin, _, _ in all_votes),
        tuple(above for _, above, _ in all_votes),
        tuple(at for at, (_, _, outside) in enumerate(all_votes) if outside),
    )


def judge_tokens(statistics: TokenStatistics, profile: CheckProfile) -> tuple[Outcome, Reason]:
    """The verdict on tokens alone: the slash tier first, then what names the fault best."""
    if not statistics.margins:
        return Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING
    if max(statistics.margins_above) > profile.margin_max_slash:
        return Outcome.SLASH, Reason.MARGIN_MAX
    if statistics.outside:
        return Outcome.REFUND, Reason.OUTSIDE_NUCLEUS
    if max(statistics.margins) > profile.margin_max_refund:
        return Outcome.REFUND, Reason.MARGIN_MAX
    if statistics.mean > profile.margin_mean:
        return Outcome.REFUND, Reason.MARGIN_MEAN
    return Outcome.ACCEPT, Reason.NONE


def margins(
    logits: Floats, token: int, sampling: Sampling, seed: Hash32, position: int, borders: Borders
) -> Vote:
    """Margin of one token (ppm) in the refund and in the slash tier, and whether it is outside.

    logits : float32 [vocabulary] of the state at absolute `position`.
    """
    noisy = Noisy(logits, sampling, seed, position)
    rivals, above, outside = _rivals(noisy, token, borders)
    return _margin(noisy, token, rivals), _margin(noisy, token, above), outside


def _rivals(noisy: Noisy, token: int, borders: Borders) -> tuple[Mask, Mask, bool]:
    """Rivals of the refund and of the slash tier, and whether the token is outside."""
    logits = noisy.logits
    above: Mask = logits >= logits[token] + np.float32(borders.tau)
    if not truncates(noisy.sampling):
        return np.full(len(logits), True), above, False
    inside, outside = _nucleus(logits, token, noisy.sampling, borders)
    return inside | above, above, outside


def _lead(noisy: Noisy, token: int, borders: Borders) -> int:
    ids = np.flatnonzero(_rivals(noisy, token, borders)[0])
    ids = ids[ids != token]
    if not len(ids):
        return NO_RIVAL
    ahead = float(noisy.at(np.array([token]))[0]) - noisy.best(ids)
    return min(NO_RIVAL, int(np.floor(ahead * PPM)))


def _votes(
    request: Generated, states: Floats, head: Head, borders: Borders
) -> Iterator[Vote | None]:
    for logits, token, position in _logits(request, states, head):
        yield (
            margins(logits, token, request.sampling, request.seed, position, borders)
            if np.isfinite(logits).all()
            else None
        )


def _logits(request: Generated, states: Floats, head: Head) -> Iterator[tuple[Floats, int, int]]:
    """Each output token with the logits that chose it, and the position of their state."""
    first = request.prompt_tokens - 1
    for start in range(0, len(request.output), _ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            block = head.logits(states[start : start + _ROWS])
        for at, logits in enumerate(block, start):
            yield logits, request.output[at], first + at


def _margin(noisy: Noisy, token: int, rivals: Mask) -> int:
    """Best rival's score less the token's, at least 0, in ppm (floor)."""
    ids = np.flatnonzero(rivals)
    if not len(ids):
        return 0
    behind = noisy.best(ids) - float(noisy.at(np.array([token]))[0])
    return max(0, int(np.floor(behind * PPM)))


def _nucleus(logits: Floats, token: int, sampling: Sampling, borders: Borders) -> tuple[Mask, bool]:
    """Which entries are surely kept, and whether the token surely is not.

    Top-p is compared in mass with ε to spare, top-k and min-p in logits with τ to spare: what is
    near a border counts neither as a rival nor as outside.
    """
    kept = np.full(len(logits), True)
    outside = False
    tau = np.float32(borders.tau)
    if sampling.top_p < PPM:
        top_p = sampling.top_p / PPM
        kept, mass_above = _by_mass(logits, token, sampling, top_p - borders.epsilon)
        outside = mass_above > top_p + borders.epsilon
    if sampling.top_k and sampling.top_k < len(logits):
        # Fewer than k others reach a value iff it is over the one of rank k.
        following = np.partition(logits, -sampling.top_k - 1)[-sampling.top_k - 1]
        kept &= logits - tau > following
        outside |= int(np.sum(logits >= logits[token] + tau)) >= sampling.top_k
    if sampling.min_p:
        # p / p_max depends on two logits only, whose noise moves it by a factor, not by a mass.
        behind = np.float64(logits.max()) - logits
        reach = sampling.temperature / PPM * math.log(PPM / sampling.min_p)
        kept &= behind <= reach - borders.tau
        outside |= bool(behind[token] > reach + borders.tau)
    return kept, outside


def _by_mass(logits: Floats, token: int, sampling: Sampling, border: float) -> tuple[Mask, float]:
    """Which entries have less than `border` mass above them, and how much the token has.

    Above are the likelier entries and, of equal ones, those with a lower id. Only the likeliest are
    sorted: once they hold the border's mass, none of the others can be kept.
    """
    mass = probabilities(logits, sampling)
    likeliest = np.arange(len(logits))
    if len(logits) > _SORTED:
        ids = np.flatnonzero(logits >= np.partition(logits, -_SORTED)[-_SORTED])
        likeliest = ids if mass[ids].sum() >= border else likeliest
    order = likeliest[np.argsort(-logits[likeliest], kind="stable")]
    mass_above = np.cumsum(mass[order]) - mass[order]
    kept = np.zeros(len(logits), dtype=np.bool_)
    kept[order] = mass_above < border
    above_token = logits > logits[token]
    above_token[:token] |= logits[:token] == logits[token]
    return kept, float(mass[above_token].sum())
