"""Summons and wages on the deployed contracts, by our calls, reads, events and money."""

from dataclasses import dataclass

from tests.chain.unposted import UNCLAIMED, UNSEALED
from tests.chain.world import Operator, Running, World
from verillm.api import CommitmentEvent, TaskSubmission
from verillm.chain.beacon import beacon
from verillm.chain.contract import Chain, Mined, Status
from verillm.chain.events import (
    Answered,
    Convened,
    Posted,
    Replaced,
    Sealed,
    Summoned,
    TaskClaimed,
    events_of,
    job_history,
)
from verillm.draw import draw, draw_seats
from verillm.hashing import keccak
from verillm.settlement import Ending, Settlement, Stakes, Terms, Way, settle
from verillm.signing import sign, struct_hash, task_hash
from verillm.task import (
    Commitment,
    Inner,
    ItemLeaf,
    Task,
    inner_hash,
    items_tree,
    output_hash,
    task_id,
    verification_task,
)
from verillm.types import Hash32, Outcome


@dataclass(frozen=True)
class Work:
    """A task that its scheduler signed, and what its worker committed to."""

    submission: TaskSubmission
    commitment: CommitmentEvent
    outputs: tuple[tuple[int, ...], ...]

    @property
    def digest(self) -> Hash32:
        task = self.submission.task
        return struct_hash(Commitment(task.task_id, inner_hash(self.commitment.inner)))


def work(world: World, task: Task, outputs: tuple[tuple[int, ...], ...]) -> Work:
    worker = next(each for each in world.workers if each.address == task.worker)
    leaves = tuple(
        ItemLeaf(n, item.length, len(out), keccak(b"trace"), output_hash(task.task_id, out))
        for n, (item, out) in enumerate(zip(task.items, outputs, strict=True))
    )
    inner = Inner(
        task_hash(task),
        items_tree(leaves).root,
        len(leaves),
        sum(leaf.prompt_tokens for leaf in leaves),
        sum(leaf.new_tokens for leaf in leaves),
    )
    signed = sign(world.domain, Commitment(task.task_id, inner_hash(inner)), worker.hot)
    given = sign(world.domain, task, world.scheduler.hot)
    submission = TaskSubmission(task, world.scheduler.address, given)
    return Work(submission, CommitmentEvent(inner, leaves, signed), outputs)


def verification(world: World, run: Running, owner: str, number: int) -> Task:
    return verification_task(
        run.secret,
        world.id_of(run),
        number,
        list(enumerate(run.requests)),
        run.outputs,
        owner,  # type: ignore[arg-type]
        world.model,
        run.quote.expiry,
        run.lock,
        run.job.max_fee,
        [1] * len(run.requests),
    )


def summon(world: World, run: Running, index: int) -> Work:
    """Summons whoever holds a place; what it would answer."""
    chain = world.chain(world.client)
    places = chain.places_of(world.id_of(run))
    owner = places[index].owner if places else world.committee(run)[index].address
    number = places[index].number if places else index + 1
    found = work(world, verification(world, run, owner, number), ((9,),) * len(run.requests))
    given = found.submission
    call = world.calls.summon(
        run.posting, run.secret, run.inner, index, world.spec, given.task, given.signature
    )
    run.mined.append(world.send(world.scheduler.account, call))
    return found


def answer(world: World, run: Running, index: int, found: Work) -> None:
    event = found.commitment
    call = world.calls.answer(world.id_of(run), index, event.inner, event.signature)
    run.mined.append(world.send(world.auditor.account, call))


def wait(world: World) -> None:
    world.net.pass_time(world.net.config.opening_window + 2)


def test_a_summons_says_all_that_its_member_needs(world: World) -> None:
    run = world.post()
    found = summon(world, run, 1)
    events = events_of(run.mined[-1])
    convened = next(each for each in events if isinstance(each, Convened))
    assert convened.secret == run.secret
    assert convened.inner == run.inner
    assert convened.owners == tuple(each.address for each in world.committee(run))
    summoned = next(each for each in events if isinstance(each, Summoned))
    assert summoned.whole_task == found.submission.task
    assert task_hash(summoned.whole_task) == found.commitment.inner.task_hash
    assert summoned.signature == found.submission.signature
    chain = world.chain(world.client)
    place = chain.places_of(world.id_of(run))[1]
    assert place.pending
    assert place.answer_by == summoned.answer_by
    assert place.task_hash == task_hash(found.submission.task)
    assert chain.job_state(world.id_of(run)).status is Status.SUMMONED


def test_a_silent_member_is_replaced_and_the_job_is_sealed(world: World) -> None:
    run = world.post()
    before = chain_of(world).account_of(world.committee(run)[0].address).balance
    silent, heard = summon(world, run, 0), summon(world, run, 1)
    answer(world, run, 1, heard)
    wait(world)
    run.mined.append(world.send(world.auditor.account, world.calls.replace(run.posting, 0)))
    replaced = next(each for each in events_of(run.mined[-1]) if isinstance(each, Replaced))
    assert replaced.owner == silent.submission.task.worker
    # The chain's next of the stream is ours.
    assert (replaced.seat, replaced.successor) == drawn(world, run, 4)[3]
    assert before - chain_of(world).account_of(replaced.owner).balance == run.posting.lock
    inners, signatures = signed_places(world, run)
    call = world.calls.seal_summoned(run.posting, run.inner, inners, signatures)
    run.mined.append(world.send(world.auditor.account, call))
    sealed = next(each for each in events_of(run.mined[-1]) if isinstance(each, Sealed))
    members = sealed.sealing.committee
    assert members[0].owner == replaced.successor
    assert members[1].inner == inner_hash(heard.commitment.inner)
    history = job_history(chain_of(world), world.id_of(run))
    assert [history.number_of(k) for k in range(4)] == [0, 4, 2, 3]
    assert history.first(Answered) is not None


def test_a_dismissed_job_pays_as_we_compute(world: World) -> None:
    run = world.post()
    parties = [run.inferencer, *world.committee(run)]
    heard = summon(world, run, 1)
    summon(world, run, 0)
    answer(world, run, 1, heard)
    config = world.net.config
    chain = chain_of(world)
    before = [chain.account_of(each.address).balance for each in (*parties, world.scheduler)]
    world.net.pass_time(config.opening_window + config.seal_window + 2)
    world.send(world.auditor.account, world.calls.dismiss(run.posting))
    after = [chain.account_of(each.address).balance for each in (*parties, world.scheduler)]
    terms = Terms(
        config.kappa_bps, config.inferencer_bps, config.committee_bps, config.scheduler_bps,
        config.caller_fee, config.claim_bond, config.challenge_bond,
    )  # fmt: skip
    posting = run.posting
    stakes = Stakes(
        posting.job.max_fee, 0, posting.lock, posting.bond, (posting.lock, posting.lock, 0)
    )
    ending = Ending(Outcome.REFUND, Way.DISMISSED, frozenset({1}), frozenset({3}))
    shares: Settlement = settle(terms, stakes, ending)
    assert shares.total == posting.job.max_fee
    gained = [now - then for now, then in zip(after, before, strict=True)]
    assert gained == [shares.inferencer, *shares.committee, shares.scheduler]
    assert chain.job_state(world.id_of(run)).status is Status.FINAL


def test_work_that_nobody_posts_is_paid_from_the_schedulers_stake(world: World) -> None:
    run = world.draft()
    found = work(world, run.task, run.outputs)
    chain, config = chain_of(world), world.net.config
    world.net.pass_time(300 + config.seal_window + 1)
    mined = claim(world, found, run.inferencer)
    event = next(each for each in events_of(mined) if isinstance(each, TaskClaimed))
    assert event.commitment == found.digest
    assert event.inner == found.commitment.inner
    assert event.leaves == found.commitment.leaves
    state = chain.task_claim_of(found.digest)
    assert state is not None
    tokens = found.commitment.inner.prompt_tokens + found.commitment.inner.new_tokens
    assert state.amount == min(run.task.fee, tokens * 10**12) == event.amount
    world.net.pass_time(config.unbonding)
    before = chain.account_of(run.inferencer.address).balance
    world.send(world.auditor.account, world.calls.collect_task(found.digest))
    assert chain.account_of(run.inferencer.address).balance - before == state.amount


def test_a_claim_of_work_that_was_posted_costs_what_it_wanted(world: World) -> None:
    run, found = world.draft(), None
    found = work(world, run.task, run.outputs)
    run.inner, run.commitment = found.commitment.inner, found.digest
    run.worker_signature = found.commitment.signature
    run.mined.append(world.send(world.scheduler.account, world.post_call(run)))
    run.posting = next(
        each for each in events_of(run.mined[-1]) if isinstance(each, Posted)
    ).posting
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    chain = chain_of(world)
    before = chain.account_of(run.inferencer.address).balance
    claim(world, found, run.inferencer)
    state = chain.task_claim_of(found.digest)
    assert state is not None
    call = world.calls.contest_task(found.digest, run.posting, UNSEALED, UNCLAIMED)
    world.send(world.auditor.account, call)
    assert before - chain.account_of(run.inferencer.address).balance == state.amount
    closed = chain.task_claim_of(found.digest)
    assert closed is not None
    assert closed.amount == closed.exposure == 0


def test_a_scheduler_has_made_up_tokens_judged(world: World) -> None:
    run = world.draft()
    found = work(world, run.task, run.outputs)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    claim(world, found, run.inferencer)
    call = world.calls.post_claimed(run.job, run.quote, found.digest)
    run.mined.append(world.send(world.scheduler.account, call))
    posted = next(each for each in events_of(run.mined[-1]) if isinstance(each, Posted))
    assert posted.job_id == world.id_of(run)
    assert posted.posting.commitment == found.digest
    assert posted.posting.outputs_root == run.outputs_root
    assert chain_of(world).job_state(world.id_of(run)).status is Status.POSTED


def test_nobody_has_a_claim_or_a_place_unasked(world: World) -> None:
    run = world.post()
    assert chain_of(world).task_claim_of(run.commitment) is None
    assert chain_of(world).places_of(world.id_of(run)) == ()


def claim(world: World, found: Work, worker: Operator) -> Mined:
    call = world.calls.claim_task(found.submission, worker.seat, found.commitment, found.outputs)
    return world.send(world.auditor.account, call)


def chain_of(world: World) -> Chain:
    return world.chain(world.client)


def drawn(world: World, run: Running, wanted: int) -> list[tuple[int, str]]:
    chain, posting = chain_of(world), run.posting
    seed = draw(run.secret, posting.commitment, beacon(chain, posting.posted_block))
    owners = [chain.seat_of(world.model, slot).owner for slot in range(posting.slots)]
    return draw_seats(seed, posting.slots, owners.__getitem__, posting.worker, wanted)


def signed_places(world: World, run: Running) -> tuple[list[Hash32], list[bytes]]:
    inners, signatures = [], []
    for place in chain_of(world).places_of(world.id_of(run)):
        member = next(each for each in world.workers if each.address == place.owner)
        inner = keccak(b"inner %d" % place.number)
        task = task_id(run.secret, world.id_of(run), place.number)
        inners.append(inner)
        signatures.append(sign(world.domain, Commitment(task, inner), member.hot))
    return inners, signatures
