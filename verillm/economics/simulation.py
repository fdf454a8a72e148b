"""Thousands of jobs under the real rules: what each conduct earns, in expectation.

Draws are `verillm.draw`, verdicts `verillm.verdict.decide`, money `verillm.settlement.settle`; only
the states are synthetic. A party's run is a point: honest ones scatter around the truth, a cheaper
model sits `cheap_distance` away, a forgery far away, allies share one forgery, and garbage is far
from everything. The statistic of a pair is the distance of its points over the honest median, as a
check profile measures it. Jobs are arrays; each distinct verdict and settlement is computed once.

Amounts are token units (int where the contract has them), costs too; every job is alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np

from verillm.draw import draw, draw_seats
from verillm.economics.world import Conduct, Indices, Reals, Tally, World
from verillm.errors import InputError
from verillm.hashing import u256
from verillm.model import CheckProfile
from verillm.settlement import Ending, Settlement, Way, settle
from verillm.statistics import PairStatistics
from verillm.types import PPM, Mask, Outcome
from verillm.verdict import PartyStatus, decide

_DIMENSIONS: Final = 24
_FAR: Final = 100.0
_POSITIONS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """Per job: what the rules say, and which members are paid, [jobs, m]. `by_tokens`: the states
    were accepted, the tokens were not."""

    outcomes: Indices
    paid: Mask
    by_tokens: Mask


@dataclass(frozen=True, slots=True, eq=False)
class _Ended:
    """Per job: the settled amounts, and whether the public round ran."""

    outcomes: Indices
    challenged: Mask
    money: Mapping[str, Reals]


def simulate(
    world: World,
    conducts: Sequence[Conduct],
    jobs: int,
    seed: int = 0,
    inferencer: int | None = None,
) -> Tally:
    """Run `jobs` jobs among owners of these conducts; always the same for the same arguments.

    `inferencer` gives every job to one owner, otherwise owners get them by their seats.
    """
    if len(conducts) != len(world.seats):
        raise InputError("one conduct per owner")
    rng = np.random.default_rng(seed)
    parties = draw_parties(world.seats, world.members, jobs, seed, inferencer)
    kinds = np.array(conducts, dtype=np.int64)[parties]
    refund_tier, slash_tier = _agreements(world, kinds, rng)
    judged = _judge(kinds, refund_tier, slash_tier)
    judged = _judge_tokens(world, kinds, judged, rng)
    ended = _end(world, kinds, judged, rng)
    return _tally(world, kinds, ended, rng)


def deviation(
    world: World, conduct: Conduct, jobs: int, seed: int = 0, coalition: int = 1
) -> tuple[Tally, Tally]:
    """Two worlds of honest owners, in the second of which the first `coalition` owners deviate.

    The first owner is the inferencer of every job, so that its profits compare; verifiers' profits
    are those of the whole coalition.
    """
    honest = [Conduct.HONEST] * len(world.seats)
    deviant = [conduct] * coalition + honest[coalition:]
    return (
        simulate(world, honest, jobs, seed, inferencer=0),
        simulate(world, deviant, jobs, seed, inferencer=0),
    )


@lru_cache(maxsize=32)
def draw_parties(
    seats: tuple[int, ...], members: int, jobs: int, seed: int, inferencer: int | None = None
) -> Indices:
    """Owners of each job by index, [jobs, m+1]: the inferencer, then the committee as drawn."""
    rng = np.random.default_rng([seed, 1])
    slots = [str(owner) for owner, held in enumerate(seats) for _ in range(held)]
    chance = np.array(seats) / sum(seats)
    first = rng.choice(len(seats), size=jobs, p=chance)
    if inferencer is not None:
        first[:] = inferencer
    parties = np.empty((jobs, members + 1), dtype=np.int64)
    for job, owner in enumerate(first.tolist()):
        seed_of_job = draw(u256(seed), u256(job), u256(owner))
        drawn = draw_seats(seed_of_job, len(slots), slots.__getitem__, str(owner), members)
        parties[job] = [owner, *(int(member) for _, member in drawn)]
    parties.setflags(write=False)
    return parties


# ── Verdicts ────────────────────────────────────────────────────────────────────────────────────
def _agreements(world: World, kinds: Indices, rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Who agrees with whom at each tier, [jobs, pairs], pairs as `combinations` orders them."""
    points = _points(world, kinds, rng)
    pairs = list(combinations(range(kinds.shape[1]), 2))
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    distances = np.linalg.norm(points[:, a] - points[:, b], axis=2)
    return distances <= world.refund, distances <= world.slash


def _points(world: World, kinds: Indices, rng: np.random.Generator) -> Reals:
    """Where each party's run lies, [jobs, m+1, dimensions]; honest ones about 1 apart."""
    shape = (*kinds.shape, _DIMENSIONS)
    scale = np.exp(world.spread * rng.standard_normal(kinds.shape))[..., None]
    points = rng.standard_normal(shape) * scale / np.sqrt(2 * (_DIMENSIONS - 2 / 3))
    directions = rng.standard_normal(shape)
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    forging = np.isin(kinds[:, 0], (Conduct.LYING, Conduct.COLLUDING))
    away = np.where(kinds[:, 0] == Conduct.LAZY, world.cheap_distance, _FAR * forging)
    points[:, 0] += away[:, None] * directions[:, 0]
    garbage = np.isin(kinds[:, 1:], (Conduct.LAZY, Conduct.GRIEFING))
    points[:, 1:][garbage] += _FAR * directions[:, 1:][garbage]
    allied = (kinds == Conduct.COLLUDING) & (kinds[:, :1] == Conduct.COLLUDING)
    points[allied] = np.broadcast_to(points[:, :1], shape)[allied]
    return np.asarray(points, dtype=np.float64)


def _judge(kinds: Indices, refund_tier: Mask, slash_tier: Mask) -> _Judged:
    """The real verdict of each distinct pattern of agreement, spread over all jobs that show it."""
    silent = kinds == Conduct.GRIEFING
    silent[:, 0] = False
    rows = np.concatenate([silent, refund_tier, slash_tier], axis=1)
    patterns, where = np.unique(rows, axis=0, return_inverse=True)
    size = kinds.shape[1]
    verdicts = [_decide(tuple(row.tolist()), size) for row in patterns]
    outcomes = np.array([outcome for outcome, _ in verdicts], dtype=np.int64)
    paid = np.array([members for _, members in verdicts], dtype=np.bool_)
    where = where.reshape(-1)
    return _Judged(outcomes[where], paid[where], np.zeros(len(kinds), dtype=np.bool_))


_PROFILE: Final = CheckProfile(
    mean_refund=1 * PPM,
    mean_slash=2 * PPM,
    over_refund=0,
    over_slash=0,
    margin_mean=0,
    margin_max_refund=0,
    margin_max_slash=0,
    mass_epsilon=0,
    logit_tau=0,
    min_positions=1,
    layers=(),
)


@lru_cache(maxsize=1 << 16)
def _decide(pattern: tuple[bool, ...], size: int) -> tuple[Outcome, tuple[bool, ...]]:
    """`verdict.decide` of one pattern: who is silent, then which pairs agree at both tiers."""
    pairs = list(combinations(range(size), 2))
    silent, rest = pattern[:size], pattern[size:]
    tiers = zip(rest[: len(pairs)], rest[len(pairs) :], strict=True)
    statistics = {
        pair: PairStatistics(PPM * (1 + (not refund) + (not slash)), 1, 0)
        for pair, (refund, slash) in zip(pairs, tiers, strict=True)
        if not any(silent[party] for party in pair)
    }
    statuses = [PartyStatus.SILENT if gone else PartyStatus.OPEN for gone in silent]
    verdict = decide(statuses, statistics, _POSITIONS, _PROFILE)
    members = {member for clique in verdict.details.cliques for member in clique}
    if verdict.outcome is Outcome.INCONCLUSIVE:
        members = {party for party in range(1, size) if not silent[party]}
    return verdict.outcome, tuple(party in members for party in range(1, size))


def _judge_tokens(
    world: World, kinds: Indices, judged: _Judged, rng: np.random.Generator
) -> _Judged:
    """What states let pass, tokens may still refund: attested, and on chain never a slash."""
    cheap = np.isin(kinds[:, 0], (Conduct.LAZY, Conduct.PREFILL, Conduct.FORGING))
    seen = rng.random(len(kinds)) < world.token_detection
    refunded = cheap & seen & (judged.outcomes == Outcome.ACCEPT)
    outcomes = np.where(refunded, Outcome.REFUND, judged.outcomes).astype(np.int64)
    return _Judged(outcomes, judged.paid, refunded)


# ── Money ───────────────────────────────────────────────────────────────────────────────────────
_WAYS: Final = tuple(Way)
_CHEATS: Final = (
    Conduct.LAZY,
    Conduct.PREFILL,
    Conduct.LYING,
    Conduct.COLLUDING,
    Conduct.FORGING,
)
_FORGERS: Final = (Conduct.LYING, Conduct.COLLUDING, Conduct.FORGING)


def _end(world: World, kinds: Indices, judged: _Judged, rng: np.random.Generator) -> _Ended:
    """Claims, challenges, and the settlement that follows.

    A false claim of acceptance falls to whoever looks: by the states, or by the committee's word.
    """
    jobs = len(kinds)
    cheat, outcomes = kinds[:, 0], judged.outcomes
    false = np.isin(cheat, _CHEATS) & (outcomes != Outcome.ACCEPT)
    false &= rng.random(jobs) < world.corrupt
    caught = false & (rng.random(jobs) < world.watch)
    aborted = (cheat == Conduct.COLLUDING) & (outcomes != Outcome.ACCEPT) & world.abort
    softened = (cheat == Conduct.FORGING) & judged.by_tokens & ~false
    griefed = ~false & (rng.random(jobs) < world.grief) & ~softened
    outcomes = np.where(false & ~caught, Outcome.ACCEPT, outcomes)
    outcomes = np.where(aborted, Outcome.REFUND, outcomes).astype(np.int64)
    cases = [aborted, caught, griefed | softened]
    ways = [_WAYS.index(way) for way in (Way.UNSEALED, Way.OVERTURNED, Way.UPHELD)]
    way = np.select(cases, ways, _WAYS.index(Way.FINALIZED))
    challenged = (caught | griefed | softened) & ~aborted
    silent = (kinds == Conduct.GRIEFING) & challenged[:, None]
    silent[:, 0] = False
    unpaid = ~judged.paid & (not world.pay_all)
    money = _settle_all(world, outcomes, way, silent, unpaid)
    # An ally's bond is the cheat's own: of the scheduler that aborts, the false claimer, the
    # challenger of an attested slash.
    own = np.select(
        [aborted, caught, softened],
        [money["scheduler"], money["claimer"], money["challenger"]],
        0.0,
    )
    money["inferencer"] = money["inferencer"] + own
    honest = challenged & ~softened
    money["challenger"] = np.where(honest, money["challenger"] - world.costs.challenge, 0.0)
    return _Ended(outcomes, challenged, money)


def _settle_all(
    world: World, outcomes: Indices, ways: Indices, silent: Mask, unpaid: Mask
) -> dict[str, Reals]:
    """`settle` of each distinct ending, spread over all jobs that ended so."""
    rows = np.concatenate([outcomes[:, None], ways[:, None], silent, unpaid], axis=1)
    endings, where = np.unique(rows, axis=0, return_inverse=True)
    settled = [_settle_one(world, tuple(row.tolist())) for row in endings]
    names = ("inferencer", "scheduler", "claimer", "challenger", "burnt", "committee")
    amounts = {name: np.array([getattr(one, name) for one in settled], float) for name in names}
    return {name: values[where.reshape(-1)] for name, values in amounts.items()}


def _settle_one(world: World, row: tuple[int, ...]) -> Settlement:
    size = world.members + 1
    lost = frozenset(party for party, gone in enumerate(row[2 : 2 + size]) if gone)
    unpaid = frozenset(party for party, gone in enumerate(row[2 + size :], 1) if gone)
    ending = Ending(Outcome(row[0]), _WAYS[row[1]], lost, unpaid)
    settled = settle(world.terms, world.stakes, ending)
    if settled.total != world.max_fee:
        raise InputError(f"money appeared or vanished in {ending}")
    return settled if settled.committee else replace(settled, committee=(0,) * world.members)


def _tally(world: World, kinds: Indices, ended: _Ended, rng: np.random.Generator) -> Tally:
    costs, money = world.costs, ended.money
    cheat = kinds[:, 0]
    work = np.where(np.isin(cheat, _CHEATS), costs.cheap, costs.inference)
    work = work + costs.prefill * np.isin(cheat, (Conduct.PREFILL, Conduct.FORGING))
    forged = np.isin(cheat, _FORGERS) & (ended.outcomes == Outcome.ACCEPT)
    profit = money["inferencer"] - work - costs.opening * ended.challenged + world.value * forged
    return Tally(
        conducts=kinds,
        outcomes=ended.outcomes,
        inferencer=profit,
        verifiers=_verifiers(world, kinds, ended, rng),
        scheduler=money["scheduler"] - costs.scheduler,
        challenger=money["challenger"],
        burnt=money["burnt"],
    )


def _verifiers(world: World, kinds: Indices, ended: _Ended, rng: np.random.Generator) -> Reals:
    """Profit per check-like task: a check, or with chance `hidden` a job of the same cost."""
    members = kinds[:, 1:]
    garbage = np.isin(members, (Conduct.LAZY, Conduct.GRIEFING))
    terms, stakes = world.terms, world.stakes
    usual = settle(terms, stakes, Ending(Outcome.ACCEPT, Way.FINALIZED))
    pay = ended.money["committee"]
    opened = ended.challenged[:, None] & (members != Conduct.GRIEFING)
    work = world.costs.prefill * ~garbage
    checks = pay - work - world.costs.opening * opened
    slashed = settle(terms, stakes, Ending(Outcome.SLASH, Way.FINALIZED))
    disguised = np.where(garbage, slashed.inferencer, usual.inferencer) - work
    job = rng.random(members.shape) < world.hidden
    return np.asarray(np.where(job, disguised, checks), dtype=np.float64)
