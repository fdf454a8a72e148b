"""All that the chain says of one job, read once, and held against itself.

`read` is the only part that talks to an endpoint. `check` is pure: whatever the endpoint answered
must be possible, or the audit ends with `InconsistentChain`. An endpoint that forges a whole
coherent chain is not found out here; it still cannot forge the workers' signatures.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from eth_utils.address import is_address, to_checksum_address

from verillm.appeal import (
    Content,
    appeal_draw,
    holds,
    inferencer_task,
    second_claiming,
    second_sealing,
    size_of,
)
from verillm.chain import appeals, events, rpc
from verillm.chain.contract import Chain, JobState, Status
from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.chain.events import At, BeaconKept, JobHistory
from verillm.draw import checked_requests, draw, draw_seats, position_seed
from verillm.errors import DrawExhausted
from verillm.model import ModelSpec, model_id
from verillm.records import Claiming, Member, Posting, Sealing, record_hash
from verillm.signing import Domain, job_id, struct_hash
from verillm.task import Commitment, draw_commit, inner_hash, task_id
from verillm.types import ChecksumAddress, Hash32, JobId, Outcome, Reason
from verillm_verifier.errors import AmbiguousJob, InconsistentChain, UnknownJob
from verillm_verifier.registry import KINDS, Registry
from verillm_verifier.round import Sums, read_sums

ZERO: Final = Hash32(bytes(32))
ATTEMPTS: Final = 5
"""Reads of a job that moves while it is read."""
SLOTS_MORE: Final = 64
"""Slots that a model may have got between a job's post and its re-verification."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One job as the chain tells it. `beacons`: the hash of a block by its number."""

    domain: Domain
    history: JobHistory
    state: JobState
    spec: ModelSpec
    registry: Registry
    config: Config
    beacons: dict[int, Hash32]
    ender: ChecksumAddress | None
    """The operator whose transaction ended the job."""
    client_has_code: bool
    """Whether the client is a contract, so that only the chain could check its signature."""
    sums: Sums | None = None
    """The public round of a challenged job."""
    second: Sums | None = None
    """The round of a re-verification, over its new committee."""

    @property
    def posting(self) -> Posting:
        """What `post` fixed."""
        posted = self.history.posted
        if posted is None:
            raise InconsistentChain("a job without its Posted event")
        return posted.event.posting

    @property
    def sealing(self) -> Sealing | None:
        """What `seal` fixed."""
        return None if self.history.sealed is None else self.history.sealed.event.sealing

    @property
    def claiming(self) -> Claiming | None:
        """What `claim` fixed."""
        return None if self.history.claimed is None else self.history.claimed.event.claiming

    @property
    def post_beacon(self) -> Hash32:
        """What the committee is drawn by."""
        return self.beacons[self.posting.posted_block]

    @property
    def seal_beacon(self) -> Hash32 | None:
        """What the positions are drawn by."""
        return None if self.sealing is None else self.beacons[self.sealing.sealed_block]


@dataclass(frozen=True, slots=True)
class Draws:
    """Everything that the beacons decided of a sealed job, recomputed."""

    draw: Hash32
    seats: tuple[int, ...]
    owners: tuple[ChecksumAddress, ...]
    checked: tuple[int, ...]
    position_seed: Hash32


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────
def find_job(chain: Chain, prefix: str) -> JobId:
    """The one job whose id begins with `prefix`, hex with or without 0x."""
    wanted = prefix.lower().removeprefix("0x")
    if not wanted or len(wanted) > 64 or set(wanted) - set("0123456789abcdef"):
        raise UnknownJob(f"{prefix!r} is not the beginning of a job's id")
    posted = events.stream(chain, (events.Posted,))
    found = {at.event.job_id for at in posted if at.event.job_id.hex().startswith(wanted)}
    if not found:
        raise UnknownJob(f"no job begins with {prefix}")
    if len(found) > 1:
        raise AmbiguousJob(f"{len(found)} jobs begin with {prefix}")
    return JobId(found.pop())


def read(chain: Chain, job: JobId) -> Facts:
    """Everything about a job at one moment; read again if it moved meanwhile."""
    for _ in range(ATTEMPTS):
        before = chain.job_state(job)
        history = events.job_history(chain, job)
        if history.posted is None:
            raise UnknownJob(f"no job 0x{job.hex()}")
        if chain.job_state(job) == before:
            return _read(chain, history, before)
    raise InconsistentChain("the job moves faster than it can be read")


def _read(chain: Chain, history: JobHistory, state: JobState) -> Facts:
    config, posting = chain.config(), _posting(history)
    registry = Registry.of(events.stream(chain, KINDS), config.key_grace)
    seen = Facts(
        domain=chain.deployment.domain,
        history=history,
        state=state,
        spec=chain.model(posting.quote.model_id),
        registry=registry,
        config=config,
        beacons={},
        ender=_ender(chain, history, registry),
        client_has_code=bool(_code(chain, posting.job.client)),
    )
    blocks = [seen.posting.posted_block]
    blocks += [] if seen.sealing is None else [seen.sealing.sealed_block]
    seen.beacons.update((number, chain.block(number).hash) for number in blocks)
    for kept in events.stream(chain, (BeaconKept,)):
        _check_kept(kept.event, seen.beacons)
    if history.challenged is not None:
        sums = read_sums(chain, round_record(seen), seen.spec.committee)
        seen = replace(seen, sums=sums)
    if (record := second_record(seen)) is not None:
        first = seen.spec.committee
        second = read_sums(chain, record, size_of(first), first)
        seen = replace(seen, second=second)
    return seen


def second_record(facts: Facts) -> Hash32 | None:
    """The record that a re-verification's round runs over, if one was started."""
    started = facts.history.first(appeals.RoundStarted)
    if started is None:
        return None
    event = started.event
    return record_hash(facts.posting, event.sealing, second_claiming(event.beacon))


def round_record(facts: Facts) -> Hash32:
    """The record that a public round runs over: with the claim, or with an empty one."""
    return record_hash(facts.posting, facts.sealing, round_claim(facts))


def round_claim(facts: Facts) -> Claiming:
    """The claim as the chain keeps it; an empty one where nobody claimed."""
    return facts.claiming or _empty_claim(facts)


def _ender(chain: Chain, history: JobHistory, registry: Registry) -> ChecksumAddress | None:
    """Who sent the last transaction, as an operator."""
    final = history.finalized
    if final is None:
        return None
    return registry.operator_of(sender_of(chain, final.transaction), final.timestamp)


def sender_of(chain: Chain, transaction: Hash32) -> ChecksumAddress:
    """Who sent a transaction."""
    found = chain.request("eth_getTransactionByHash", "0x" + transaction.hex())
    sender = found.get("from") if isinstance(found, dict) else None
    if not isinstance(sender, str) or not is_address(sender):
        raise InconsistentChain(f"no sender of transaction 0x{transaction.hex()}")
    return to_checksum_address(sender)


def _code(chain: Chain, address: ChecksumAddress) -> bytes:
    return rpc.data(chain.request("eth_getCode", address, "latest"), "code")


def _posting(history: JobHistory) -> Posting:
    if history.posted is None:
        raise InconsistentChain("a job without its Posted event")
    return history.posted.event.posting


def _check_kept(kept: BeaconKept, beacons: dict[int, Hash32]) -> None:
    if beacons.get(kept.block_number, kept.beacon) != kept.beacon:
        raise InconsistentChain(f"block {kept.block_number} has another hash than the kept one")


# ── Checking ─────────────────────────────────────────────────────────────────────────────────────
def check(facts: Facts) -> Draws | None:
    """Hold everything that the chain says against itself; the recomputed draws if it is sealed.

    InconsistentChain names the first fact that cannot be.
    """
    for fact, true in (*_posted(facts), *_placed(facts), *_state(facts)):
        _demand(fact, true())
    sealing = facts.sealing
    if sealing is None:
        return None
    for fact, true in (*_sealed(facts, sealing), *_claimed(facts), *_appealed(facts, sealing)):
        _demand(fact, true())
    return redraw(facts, sealing)


Check = tuple[str, Callable[[], bool]]


def _demand(fact: str, holds: bool) -> None:
    if not holds:
        raise InconsistentChain(f"does not hold: {fact}")


def _posted(facts: Facts) -> Iterable[Check]:
    posting, history = facts.posting, facts.history
    job, quote = posting.job, posting.quote
    return (
        (
            "the job's id is the digest of the job",
            lambda: job_id(facts.domain, job) == history.job_id,
        ),
        ("the job names its quote", lambda: job.quote == struct_hash(quote)),
        ("the quote names the model", lambda: model_id(facts.spec) == quote.model_id),
        ("the inferencer held its seat at post", lambda: _inferencer_seated(facts)),
        ("the seat is one of the slots", lambda: posting.seat < posting.slots),
    )


def _inferencer_seated(facts: Facts) -> bool:
    posting = facts.posting
    place = (posting.quote.model_id, posting.seat, posting.posted_at)
    return facts.registry.owner_at(*place) == posting.worker


def _placed(facts: Facts) -> Iterable[Check]:
    """Each event stands once, in order, in the block that it names and that the chain has."""
    history = facts.history
    steps = [history.posted, history.sealed, history.claimed, history.judged, history.finalized]
    places = [(at.block_number, at.index) for at in steps if at is not None]
    once = (events.Posted, events.Sealed, events.Judged, events.Finalized)
    claims = 1 + len(history.all(events.ClaimVoided))
    about = {getattr(each.event, "job_id", history.job_id) for each in history.events}
    return (
        ("every event is of this job", lambda: about == {history.job_id}),
        ("each step happened once", lambda: all(len(history.all(kind)) <= 1 for kind in once)),
        (
            "a claim is made again only where one was voided",
            lambda: len(history.all(events.Claimed)) <= claims,
        ),
        ("no claim without a seal", lambda: history.claimed is None or history.sealed is not None),
        ("the steps are in order", lambda: places == sorted(places)),
        ("post is in the block that it names", lambda: _in_block(facts, history.posted)),
        ("seal is in the block that it names", lambda: _in_block(facts, history.sealed)),
    )


def _in_block(facts: Facts, at: At[Any] | None) -> bool:
    if at is None:
        return True
    if isinstance(at.event, events.Posted):
        named = at.event.posting.posted_block
    else:
        named = at.event.sealing.sealed_block
    return at.block_number == named and facts.beacons.get(named) == at.block_hash


def _state(facts: Facts) -> Iterable[Check]:
    return (
        (
            "the status is what the events say",
            lambda: facts.state.status == status_by_events(facts),
        ),
        ("the record is the hash of the events", lambda: _record_holds(facts)),
    )


def status_by_events(facts: Facts) -> Status:
    """Where the job stands by its events alone."""
    history = facts.history
    ordered = (
        (history.finalized, Status.FINAL),
        (history.first(appeals.ReverificationAsked), Status.REVERIFYING),
        (history.judged, Status.JUDGED),
        (history.challenged, Status.CHALLENGED),
        (_demanded(history), Status.DEMANDED),
        (history.claimed, Status.CLAIMED),
        (history.sealed, Status.SEALED),
        (history.first(events.Convened), Status.SUMMONED),
        (history.posted, Status.POSTED),
    )
    return next((status for at, status in ordered if at is not None), Status.NONE)


def _demanded(history: JobHistory) -> At[events.BundleDemanded] | None:
    """The demand that is neither answered nor has made its claim void."""
    asked = history.all(events.BundleDemanded)
    closed = len(history.all(events.BundleServed)) + len(history.all(events.ClaimVoided))
    return asked[-1] if len(asked) > closed else None


def _record_holds(facts: Facts) -> bool:
    """The record stays at the end, so that it binds the events of a final job too."""
    if facts.history.challenged is not None:
        return facts.state.record == round_record(facts)
    return facts.state.record == record_hash(facts.posting, facts.sealing, facts.claiming)


def _empty_claim(facts: Facts) -> Claiming:
    challenged = facts.history.challenged
    beacon = ZERO if challenged is None else challenged.event.beacon
    return Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, ZERO, beacon)


def _sealed(facts: Facts, sealing: Sealing) -> Iterable[Check]:
    posting = facts.posting
    tokens = sealing.inner.prompt_tokens + sealing.inner.new_tokens
    fee = min(posting.job.max_fee, posting.quote.unit_price * tokens)
    commits = draw_commit(sealing.secret)
    return (
        (
            "the stored draw beacon is the hash of post's block",
            lambda: sealing.beacon == facts.post_beacon,
        ),
        ("the secret is the quote's", lambda: commits == posting.quote.draw_commit),
        (
            "what was posted is what was sealed",
            lambda: inferencer_commitment(facts) == posting.commitment,
        ),
        ("the committee has its size", lambda: len(sealing.committee) == facts.spec.committee),
        (
            "no lock exceeds the posted one",
            lambda: all(lock <= posting.lock for lock in sealing.locks),
        ),
        ("the fee is price times tokens, or maxFee", lambda: sealing.fee == fee),
        ("every request has an item", lambda: sealing.inner.items == posting.job.requests),
    )


def inferencer_commitment(facts: Facts) -> Hash32:
    """The commitment of task 0, rebuilt from what `seal` showed."""
    sealing = facts.sealing
    if sealing is None:
        raise InconsistentChain("a job that is not sealed shows no commitment")
    task = task_id(sealing.secret, facts.history.job_id, 0)
    return struct_hash(Commitment(task, inner_hash(sealing.inner)))


def _claimed(facts: Facts) -> Iterable[Check]:
    beacons = [] if facts.claiming is None else [facts.claiming.beacon]
    beacons += [at.event.beacon for at in facts.history.all(events.ChallengeOpened)]
    return (
        (
            "the stored beacon is the hash of seal's block",
            lambda: all(beacon in (facts.seal_beacon, ZERO) for beacon in beacons),
        ),
    )


def _replaced(
    facts: Facts, drawn: Sequence[tuple[int, str]]
) -> tuple[tuple[int, ChecksumAddress], ...]:
    """The committee after every replacement, which takes the next of the same stream."""
    seated = [(seat, to_checksum_address(owner)) for seat, owner in drawn]
    committee = seated[: facts.spec.committee]
    for successor, at in zip(
        seated[facts.spec.committee :], facts.history.all(events.Replaced), strict=True
    ):
        event = at.event
        place = (event.seat, event.successor)
        _demand("who was replaced held the place", committee[event.index][1] == event.owner)
        _demand("who replaced it is the next of the stream", place == successor)
        committee[event.index] = successor
    return tuple(committee)


def _appealed(facts: Facts, sealing: Sealing) -> Iterable[Check]:
    """What a re-verification says of itself, held against the job and its own events."""
    supplied = [each.event for each in facts.history.all(appeals.ContentSupplied)]
    convened = facts.history.first(appeals.Convened)
    closed, started = (
        facts.history.first(appeals.CommitsClosed),
        facts.history.first(appeals.RoundStarted),
    )
    checks: list[Check] = [
        (
            "the supplied contents are what was asked and answered",
            lambda: all(_is_content(facts, sealing, each.place, each.content) for each in supplied),
        )
    ]
    if convened is not None:
        checks.append(("the new committee is drawn from its beacon", lambda: _redrawn(facts)))
    if started is not None and convened is not None and closed is not None:
        members = _recommitted(facts, convened.event.committee)
        expected = second_sealing(sealing, members, closed.block_number)
        checks.append(
            (
                "the second round runs over its commitments",
                lambda: started.event.sealing == expected,
            )
        )
        checks.append(
            (
                "its positions are drawn from the block of the last commitment",
                lambda: started.event.beacon == closed.block_hash,
            )
        )
    return checks


def _is_content(facts: Facts, sealing: Sealing, place: int, content: Content) -> bool:
    posting = facts.posting
    seed = draw(sealing.secret, posting.commitment, facts.post_beacon)
    checked = checked_requests(seed, posting.job.requests, facts.spec.checked_requests)
    task = inferencer_task(sealing.secret, facts.history.job_id)
    roots = (posting.job.requests_root, posting.outputs_root)
    return place < len(checked) and holds(
        content, *roots, task, checked[place], posting.job.requests
    )


def _redrawn(facts: Facts) -> bool:
    """Whether seats and owners follow from the block that completed the contents.

    Of the slots at that time, which no event tells, at least those that were ever taken by then.
    """
    complete = facts.history.first(appeals.ContentsComplete)
    convened = facts.history.first(appeals.Convened)
    if complete is None or convened is None:
        return False
    model, wanted = facts.posting.quote.model_id, size_of(facts.spec.committee)
    seed = appeal_draw(facts.history.job_id, complete.block_hash)
    members = [(each.seat, each.owner) for each in convened.event.committee]
    least = max(facts.posting.slots, *(seat + 1 for seat, _ in members))
    for slots in range(least, least + SLOTS_MORE):
        try:
            drawn = draw_seats(
                seed,
                slots,
                lambda slot: facts.registry.owner_at(model, slot, complete.timestamp),
                facts.posting.worker,
                wanted,
            )
        except DrawExhausted:
            continue
        if list(drawn) == members:
            return True
    return False


def _recommitted(facts: Facts, committee: Iterable[Member]) -> tuple[Member, ...]:
    made = {
        each.event.index: inner_hash(each.event.inner)
        for each in facts.history.all(appeals.Recommitted)
    }
    return tuple(
        replace(member, inner=made.get(index, ZERO)) for index, member in enumerate(committee)
    )


def redraw(facts: Facts, sealing: Sealing) -> Draws:
    """Draw committee and requests again; InconsistentChain if the contract sealed others."""
    posting = facts.posting
    seed = draw(sealing.secret, posting.commitment, facts.post_beacon)
    model, time = posting.quote.model_id, posting.posted_at
    try:
        drawn = draw_seats(
            seed,
            posting.slots,
            lambda slot: facts.registry.owner_at(model, slot, time),
            posting.worker,
            facts.spec.committee + len(facts.history.all(events.Replaced)),
        )
    except DrawExhausted as error:
        raise InconsistentChain(f"nobody could have sealed this: {error}") from error
    sealed = tuple(zip(sealing.seats, sealing.owners, strict=True))
    seated = _replaced(facts, drawn)
    _demand(f"the draw gives the sealed seats {sealing.seats}", seated == sealed)
    return Draws(
        draw=seed,
        seats=sealing.seats,
        owners=sealing.owners,
        checked=checked_requests(seed, posting.job.requests, facts.spec.checked_requests),
        position_seed=position_seed(
            record_hash(posting, sealing), facts.beacons[sealing.sealed_block]
        ),
    )
