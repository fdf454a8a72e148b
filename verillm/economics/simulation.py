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
from verillm.economics.parameters import reverifiers
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
    """Per job: the settled amounts, and whether everybody had to open."""

    outcomes: Indices
    challenged: Mask
    money: Mapping[str, Reals]


@dataclass(frozen=True, slots=True, eq=False)
class _Events:
    """Per job, what happens to it: each a mask."""

    false: Mask
    caught: Mask
    aborted: Mask
    softened: Mask
    griefed: Mask
    forced: Mask
    proven: Mask
    overturned: Mask

    @property
    def opened(self) -> Mask:
        """Where everybody has to open."""
        asked = self.caught | self.griefed | self.softened | self.forced | self.overturned
        return asked & ~self.aborted


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
    events = _events(world, kinds, judged, rng, np.random.default_rng([seed, 2]))
    events, wages = _reverify(world, conducts, parties, judged, events, seed)
    ended = _end(world, kinds, judged, events, wages)
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
    many_positions=0,
    mean_refund_many=0,
    mean_slash_many=0,
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
    verdict = decide(statuses, statistics, _POSITIONS, _PROFILE, 1)
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


def _events(
    world: World,
    kinds: Indices,
    judged: _Judged,
    rng: np.random.Generator,
    extra: np.random.Generator,
) -> _Events:
    """Claims, challenges, forced rounds and proofs. `overturned` is still: who might be asked of.

    A false claim of acceptance falls to whoever looks, by the states or by the committee's word,
    and in a forced round, which nobody can leave out.
    """
    jobs, cheat = len(kinds), kinds[:, 0]
    forced = extra.random(jobs) < (1 / world.forced if world.forced else 0.0)
    false = np.isin(cheat, _CHEATS) & (judged.outcomes != Outcome.ACCEPT)
    false &= rng.random(jobs) < world.corrupt
    caught = false & ((rng.random(jobs) < world.watch) | forced)
    own = np.isin(cheat, (Conduct.LAZY, Conduct.PREFILL)) & judged.by_tokens
    proven = own & (extra.random(jobs) < world.proofs) & (~false | caught)
    aborted = (cheat == Conduct.COLLUDING) & (judged.outcomes != Outcome.ACCEPT) & world.abort
    softened = (cheat == Conduct.FORGING) & judged.by_tokens & ~false
    griefed = ~false & (rng.random(jobs) < world.grief) & ~softened
    captured = (cheat == Conduct.COLLUDING) & (judged.outcomes == Outcome.ACCEPT)
    asked = captured & (extra.random(jobs) < world.redress)
    return _Events(false, caught, aborted, softened, griefed, forced, proven, asked)


def _reverify(
    world: World,
    conducts: Sequence[Conduct],
    parties: Indices,
    judged: _Judged,
    events: _Events,
    seed: int,
) -> tuple[_Events, Reals]:
    """Draw the larger committee of each job that is asked of; its word, and what it is paid.

    It overturns where its honest members are a majority; where there is no committee that large,
    nobody can ask.
    """
    members = reverifiers(world.members)
    overturned, wages = np.zeros_like(events.overturned), np.zeros(len(parties))
    wage = world.reverify_bond // (2 * members)
    slots = [str(owner) for owner, held in enumerate(world.seats) for _ in range(held)]
    for job in np.flatnonzero(events.overturned & (len(world.seats) > members)).tolist():
        owner = int(parties[job, 0])
        draw_of_job = draw(u256(seed), u256(job), u256(len(world.seats) + owner))
        drawn = draw_seats(draw_of_job, len(slots), slots.__getitem__, str(owner), members)
        honest = sum(conducts[int(member)] == Conduct.HONEST for _, member in drawn)
        overturned[job] = honest > members // 2
        wages[job] = wage * honest
    return replace(events, overturned=overturned), wages


def _end(world: World, kinds: Indices, judged: _Judged, events: _Events, wages: Reals) -> _Ended:
    """The settlement that follows from what happened."""
    outcomes = np.where(events.false & ~events.caught, Outcome.ACCEPT, judged.outcomes)
    outcomes = np.where(events.aborted, Outcome.REFUND, outcomes)
    outcomes = np.where(events.proven | events.overturned, Outcome.SLASH, outcomes)
    upheld = events.griefed | events.softened | events.forced
    cases = [events.aborted, events.overturned, events.proven, events.caught, upheld]
    named = (Way.UNSEALED, Way.OVERTURNED, Way.CONVICTED, Way.OVERTURNED, Way.UPHELD)
    way = np.select(cases, [_WAYS.index(each) for each in named], _WAYS.index(Way.FINALIZED))
    # Members silent in a round lose their locks, and so do those who lied to a larger committee.
    lost = (kinds == Conduct.GRIEFING) & events.opened[:, None]
    lost |= (kinds == Conduct.COLLUDING) & events.overturned[:, None]
    lost[:, 0] = False
    # Whoever agrees with the larger committee is paid, whatever its own one said.
    unpaid = ~judged.paid & (not world.pay_all) & ~events.overturned[:, None]
    flags = np.stack([~events.forced, events.forced & ~events.aborted], axis=1)
    money = _settle_all(world, outcomes.astype(np.int64), way, lost, unpaid | lost[:, 1:], flags)
    # An ally's bond is the cheat's own: of the scheduler that aborts, the false claimer, the
    # challenger of an attested slash.
    own = np.select(
        [events.aborted, events.overturned | events.caught, events.softened],
        [money["scheduler"], money["claimer"], money["challenger"]],
        0.0,
    )
    money["inferencer"] = money["inferencer"] + own
    asked = events.caught | events.griefed | events.overturned
    honest = asked & ~events.aborted & ~events.softened
    cost = world.costs.challenge + wages
    money["challenger"] = np.where(honest, money["challenger"] - cost, 0.0)
    # Nobody else ends a job whose round is forced: the scheduler wants its bond back.
    opens = events.forced & ~honest & ~events.softened & ~events.aborted
    money["scheduler"] = money["scheduler"] - world.costs.challenge * opens
    return _Ended(outcomes.astype(np.int64), events.opened, money)


def _settle_all(
    world: World, outcomes: Indices, ways: Indices, lost: Mask, unpaid: Mask, flags: Mask
) -> dict[str, Reals]:
    """`settle` of each distinct ending, spread over all jobs that ended so."""
    rows = np.concatenate([outcomes[:, None], ways[:, None], flags, lost, unpaid], axis=1)
    endings, where = np.unique(rows, axis=0, return_inverse=True)
    settled = [_settle_one(world, tuple(row.tolist())) for row in endings]
    names = ("inferencer", "scheduler", "claimer", "challenger", "burnt", "committee")
    amounts = {name: np.array([getattr(one, name) for one in settled], float) for name in names}
    return {name: values[where.reshape(-1)] for name, values in amounts.items()}


def _settle_one(world: World, row: tuple[int, ...]) -> Settlement:
    size = world.members + 1
    lost = frozenset(party for party, gone in enumerate(row[4 : 4 + size]) if gone)
    unpaid = frozenset(party for party, gone in enumerate(row[4 + size :], 1) if gone)
    bonded, forced = bool(row[2]), bool(row[3])
    ending = Ending(Outcome(row[0]), _WAYS[row[1]], lost, unpaid, bonded, forced)
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
