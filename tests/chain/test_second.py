"""Every end of a re-verification: what stood, who lied, who was there, where it broke off.

The ways are taken on purpose; `Beside` holds the contract to the reference on each step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import booleans, builds, frozensets, integers, sampled_from

from tests.chain import asked
from tests.chain.casework import PRICE, SMALL, Case, Plan, posted, sealed
from tests.chain.conftest import Net
from tests.chain.town import CONFIG, Town, inhabited
from tests.reference import Network, appeals as reference
from tests.reference.state import Appeal
from verillm.appeal import size_of
from verillm.chain import appeals, events
from verillm.chain.reads import Status
from verillm.hashing import keccak
from verillm.second import conclude, ending_of
from verillm.types import ChecksumAddress, Outcome, Reason
from verillm_verifier import facts
from verillm_verifier.audit import reverified
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.money import check_money

ONE = replace(SMALL, committee=1)
SIZE = size_of(1)
WITNESS = 1
FIRST = (0, WITNESS)
NEW = range(asked.NEW, asked.NEW + SIZE)
CLAIMS = [
    (Outcome.ACCEPT, Reason.NONE),
    (Outcome.ACCEPT, Reason.NONE),
    (Outcome.REFUND, Reason.STATES_DIFFER),
    (Outcome.REFUND, Reason.LENGTH),
    (Outcome.SLASH, Reason.STATES_DIFFER),
    (Outcome.SLASH, Reason.WITHHELD),
    (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE),
]
STEPS = ["asked", "complete", "convened", "closed", "opened"]
LENGTH = (Outcome.REFUND, Reason.LENGTH)
BUSY = 20
"""The slot of `_rerunUntil`."""


@dataclass(frozen=True)
class Story:
    """How a job is asked about again, and who does what.

    stood : by a claim, a public round over it, or one over none. until : the step after which
    nobody goes on. absent : new members that commit to nothing. silent : parties of the second
    round that open nothing. lazy : what is opened is not compared. rejects : new members that
    reject the tokens. attested : when the first committee's word comes. convicted : whose fault a
    proof shows before the end. false : contents that are not the job's come first.
    busy : workers whom other re-verifications drew before.
    """

    plan: Plan = Plan()  # noqa: RUF009 - frozen
    claim: tuple[Outcome, Reason] = CLAIMS[0]
    paid: int = 1
    stood: str = "claim"
    until: str = "opened"
    in_parts: bool = False
    absent: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    lazy: bool = False
    rejects: frozenset[int] = frozenset()
    attested: str = ""
    convicted: int | None = None
    false: str = ""
    max_fee: int = 83
    busy: frozenset[int] = frozenset()
    poor: frozenset[int] = frozenset()


members = integers(0, SIZE - 1)
stories = builds(
    Story,
    plan=builds(
        Plan,
        requests=sampled_from([1, 2, 3]),
        wrong=frozensets(sampled_from([*FIRST, *NEW]), max_size=3),
        nan=frozensets(sampled_from([*FIRST, *NEW, *[None] * 4]), max_size=1).map(
            lambda found: frozenset(party for party in found if party is not None)
        ),
        other=sampled_from([(), (), (), (WITNESS,), NEW[:1], NEW[1:], NEW]).map(frozenset),
        alike=booleans(),
    ),
    claim=sampled_from(CLAIMS),
    paid=sampled_from([1, 1, 0]),
    stood=sampled_from(["claim", "claim", "round", "unclaimed"]),
    until=sampled_from(["opened"] * 6 + STEPS),
    in_parts=booleans(),
    absent=sampled_from([(), (), (), (0,), (0, 1), (0, 1, 2)]).map(frozenset),
    silent=frozensets(sampled_from([0, 1, 2, 3, 4, *[9] * 6]), max_size=2),
    lazy=sampled_from([False, False, False, True]),
    rejects=sampled_from([(), (), (1,), (0, 2), (0, 1, 2)]).map(frozenset),
    attested=sampled_from(["", "", "", "before", "during"]),
    convicted=sampled_from([None] * 6 + [0, 255]),
    false=sampled_from(["", "", "text", "more"]),
    max_fee=integers(0, 3 * PRICE * 12),
    busy=frozensets(sampled_from([0, 1, 2, 3, 4, 5, *[9] * 12]), max_size=3),
    poor=frozensets(integers(0, 5), max_size=2),
)


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed, ONE) as made:
        yield made


def tell(town: Town, story: Story) -> Case:
    """From a job's post to its end by a re-verification, or without one."""
    here, auditor = town.beside, town.auditor.address
    for worker in sorted(story.poor):
        free = here.reference.account(town.workers[worker].address)
        amount = max(1, free.balance - free.staked)
        here.send(town.workers[worker].address, "request_stake_withdrawal", amount)
    case = town.seal(town.post(town.draft(story.plan, max_fee=story.max_fee)))
    stand(town, case, story)
    again = ask(town, case, story)
    if again is not None:
        open_second(town, again, story)
    if story.attested == "during":
        word = town.work.attestation(case, *LENGTH)
        signed = town.work.attestations(case, *LENGTH, [signer(town, case)])
        here.send(auditor, "attest", *town.work.record(case), word, signed)
    if story.convicted is not None:
        values = (story.convicted, Reason.OUTPUT_MISMATCH, auditor)
        here.send(town.prover, "convict", *town.work.record(case), *values)
    for wait in (1, CONFIG.opening_window, 2 * CONFIG.opening_window):
        here.pass_time(wait)
        here.send(auditor, "close_commits", town.work.id_of(case))
        here.send(town.clients[1].address, "conclude", *town.work.record(case))
    bring_to_an_end(town, case)
    return case


def signer(town: Town, case: Case) -> Any:
    return town.signer(sealed(case).owners[0])


def stand(town: Town, case: Case, story: Story) -> None:
    """What is asked about: a claim, or the verdict of a public round."""
    here, auditor, work = town.beside, town.auditor.address, town.work
    if story.stood == "unclaimed":
        here.pass_time(CONFIG.claim_window)
    else:
        signed = work.attestations(case, *story.claim, [signer(town, case)])
        values = [posted(case), sealed(case), *story.claim, story.paid, case.bundle, signed]
        said = here.must(town.schedulers[0].address, "claim", *values)
        town.took(case, said.events)
        if story.stood == "claim" and not work.forced(case):
            return
        here.send(auditor, "reverify", *work.record(case), ())
    if here.reference.job_state(work.id_of(case)).status is Status.REVERIFYING:
        return
    attested = (*LENGTH, case.bundle, work.attestations(case, *LENGTH, [signer(town, case)]))
    word = attested if story.attested == "before" else ()
    here.must(town.operators[1].address, "challenge", *work.record(case), *word)
    opened(town, case, [k for k in FIRST if k not in story.plan.other], lazy=False)
    here.pass_time(2 * CONFIG.opening_window)
    here.must(auditor, "adjudicate", *work.record(case))


def ask(town: Town, case: Case, story: Story) -> Case | None:
    """As far as the story goes; the second round's case if it was begun."""
    here, work, record = town.beside, town.work, town.work.record(case)
    identity, requester = work.id_of(case), town.operators[1].address
    shown = asked.contents(work, case)
    begun = here.reference.job_state(identity).status is Status.REVERIFYING
    first = shown[: len(shown) // 2] if story.in_parts else shown
    held = () if story.until == "asked" else first
    if story.false and not begun:
        other = replace(shown[-1], output=shown[-1].output[::-1])
        wrong = (*shown[:-1], other) if story.false == "text" else (*shown, *shown)
        here.send(requester, "reverify", *record, wrong)
    if not begun and here.send(requester, "reverify", *record, held).error is not None:
        return None
    if story.until == "asked":
        return None
    rest = shown[len(first) :] if not begun else shown
    here.send(town.clients[0].address, "supply", *record, rest)
    keep_busy(town, [town.workers[each].address for each in story.busy if each < 9])
    here.send(town.auditor.address, "convene", *record, wait=12)
    if story.until == "complete":
        return None
    made = {}
    committee = here.reference.appeal_of(identity).committee
    for index, member in enumerate(committee):
        if index not in story.absent and story.until != "convened":
            made[index] = asked.recommit(work, case, index, member)
            here.send(member.owner, "recommit", identity, index, made[index].inner)
    if len(made) < len(committee):
        here.send(town.auditor.address, "close_commits", identity)
        here.pass_time(2 * CONFIG.opening_window)
        here.send(town.auditor.address, "close_commits", identity)
    if story.until in ("convened", "closed"):
        return None
    said = here.send(town.auditor.address, "start_round", *record)
    started = [each for each in said.events if isinstance(each, appeals.RoundStarted)]
    return asked.second_round(case, started[0], made) if started else None


def keep_busy(town: Town, owners: list[ChecksumAddress]) -> None:
    """For longer than commitments are waited for, on both sides: such texts would take as long."""
    here = town.beside
    until = here.now + CONFIG.opening_window
    for owner in owners:
        here.reference.state.rerun[owner] = until
        slot = keccak(bytes(12) + bytes.fromhex(owner[2:]) + BUSY.to_bytes(32, "big"))
        where = (here.net.deployment.contract, "0x" + slot.hex())
        here.net.rpc("anvil_setStorageAt", *where, "0x" + until.to_bytes(32, "big").hex())


def open_second(town: Town, again: Case, story: Story) -> None:
    identity = town.work.id_of(again)
    parties = range(len(sealed(again).committee) + 1)
    absent = {index + 1 for index in story.absent}
    there = [k for k in parties if k not in story.silent | absent]
    if 0 in story.silent and len(story.silent) > 1:
        there = []
    # As this round numbers them: the new members, then the first one.
    numbered = {asked.NEW + index: index + 1 for index in range(SIZE)} | {WITNESS: SIZE + 1}
    other = {numbered[party] for party in story.plan.other}
    opened(town, again, [k for k in there if k not in other], story.lazy, there, other)
    for index in sorted(story.rejects):
        owner = sealed(again).owners[index]
        reason = Reason.MARGIN_MEAN if index else Reason.LENGTH
        town.beside.send(owner, "reject_tokens", identity, index, reason)


def opened(
    town: Town,
    case: Case,
    whole: list[int],
    lazy: bool,
    there: list[int] | None = None,
    other: set[int] | frozenset[int] = frozenset(),
) -> None:
    """Everyone opens everything; whoever has another text shows it."""
    here, work, auditor = town.beside, town.work, town.auditor.address
    others = case.plan.other & {WITNESS} if there is None else other & set(there)
    if there == []:
        return
    for place in range(len(work.checked(case))):
        here.send(auditor, "reveal", *work.reveal(case, place))
        for index in range(len(work.where(case, place))):
            for party in sorted(others) if index == 0 else ():
                here.send(auditor, "serve", *work.serve(case, place, index, party))
            if lazy:
                for party in whole:
                    here.send(auditor, "serve", *work.serve(case, place, index, party))
            elif whole:
                here.send(auditor, "compare", *work.compare(case, place, index, whole))


def bring_to_an_end(town: Town, case: Case) -> None:
    """Nothing of this needs anybody: what nobody asked again is settled."""
    here, auditor, record = town.beside, town.auditor.address, town.work.record(case)
    status = here.reference.job_state(town.work.id_of(case)).status
    if status in (Status.CLAIMED, Status.JUDGED):
        here.pass_time(CONFIG.dispute_window)
        here.must(auditor, "settle" if status is Status.JUDGED else "finalize", *record)
        status = Status.FINAL
    assert status is Status.FINAL
    for operator in town.operators:
        assert here.reference.account(operator.address).locked == 0


def check(town: Town, story: Story) -> None:
    with town.beside.undone():
        audit(town, tell(town, story))
        town.beside.compare()


def audit(town: Town, case: Case) -> None:
    """A stranger finds the committee, the verdict and everyone's money again, from the chain."""
    known = facts.read(town.beside.chain, town.work.id_of(case))
    facts.check(known)
    check_money(known)
    power_a_unit_that_moved_is_found(known)
    concluded = known.history.first(appeals.Concluded)
    if concluded is not None:
        found = reverified(known)
        said = Outcome.INCONCLUSIVE if found is None else found.outcome
        assert said is concluded.event.outcome


def power_a_unit_that_moved_is_found(known: facts.Facts) -> None:
    """Except after a proof: what was free of whom it convicted is in no event."""
    if known.history.all(events.Convicted):
        return
    job, worker = known.history.job_id, known.posting.worker
    made = (events.Paid(job, worker, 1), events.Slashed(job, known.posting.quote.scheduler, 1))
    last = known.history.events[-1]
    told = (*known.history.events, *(replace(last, event=event) for event in made))
    with pytest.raises(InconsistentChain, match="demands"):
        check_money(replace(known, history=events.JobHistory(job, told)))


@settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.generate])
@given(story=stories)
def test_a_reverification_goes_as_the_reference_says(town: Town, story: Story) -> None:
    check(town, story)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(max_examples=50, deadline=None, database=None)
@given(story=stories)
def test_a_reverification_goes_as_the_reference_says_at_length(town: Town, story: Story) -> None:
    check(town, story)


WRONG = Plan(wrong=frozenset({0, WITNESS}), alike=True)
FRAMED = Plan(wrong=frozenset({WITNESS}))
NAMED = {
    "stands": Story(),
    "a captured committee": Story(plan=WRONG),
    "an honest inferencer was framed": Story(plan=FRAMED, claim=CLAIMS[4]),
    "nobody was heard": Story(silent=frozenset(range(5)), absent=frozenset({0, 1, 2})),
    "withheld, and a member never came": Story(silent=frozenset({0, 9}), absent=frozenset({0})),
    "a false claim that it was withheld": Story(claim=CLAIMS[5]),
    "a round is overturned": Story(plan=WRONG, stood="round"),
    "a round stands": Story(stood="round"),
    "tokens are rejected": Story(rejects=frozenset({0, 2})),
    "another text was posted": Story(plan=Plan(other=frozenset(NEW))),
    "the first committee speaks up": Story(attested="during"),
    "nobody goes on": Story(until="asked"),
    "too few come": Story(absent=frozenset({0, 1})),
    "nobody has time, and one is late": Story(absent=frozenset({0}), busy=frozenset(range(6))),
    "a proof ends it": Story(convicted=0),
    "false contents": Story(false="text"),
    "a text that nobody can run": Story(plan=Plan(output=(5, 6, 7, 8, 96))),
}


@pytest.mark.parametrize(("name", "story"), NAMED.items())
def test_each_named_end_is_the_references(town: Town, name: str, story: Story) -> None:
    check(town, story)


# ── Would a wrong rule be seen? ──────────────────────────────────────────────────────────────────
Patch = pytest.MonkeyPatch


def whoever_is_absent_is_paid(patch: Patch) -> None:
    everyone = frozenset(range(1, SIZE + 1))
    patch.setattr(Appeal, "committed", property(lambda _: everyone))


def no_wage(patch: Patch) -> None:
    def wrong(terms: Any, stakes: Any, bond: int, ending: Any, second: Any) -> Any:
        return conclude(terms, stakes, 0, ending, second)

    patch.setattr(reference, "conclude", wrong)


def liars_keep_their_locks(patch: Patch) -> None:
    witness = Network._witness

    def wrong(self: Network, *values: Any) -> str:
        return witness(self, *values).replace("strange", "")

    patch.setattr(Network, "_witness", wrong)


def the_challenger_wins(patch: Patch) -> None:
    def wrong(*values: Any) -> Any:
        return replace(ending_of(*values), appealed=False)

    patch.setattr(reference, "ending_of", wrong)


def the_busy_lose_their_locks(patch: Patch) -> None:
    patch.setattr(Network, "_takes_on", lambda *_: True)


def words_on_tokens_are_not_heard(patch: Patch) -> None:
    patch.setattr(reference, "_majority", lambda _: Reason.NONE)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (whoever_is_absent_is_paid, "withheld, and a member never came"),
        (no_wage, "stands"),
        (liars_keep_their_locks, "a captured committee"),
        (the_challenger_wins, "a round is overturned"),
        (words_on_tokens_are_not_heard, "tokens are rejected"),
        (the_busy_lose_their_locks, "nobody has time, and one is late"),
    ],
)
def test_power_a_wrong_rule_of_a_reverification_is_seen(
    town: Town, wrong: Callable[[Patch], None], name: str
) -> None:
    check(town, NAMED[name])
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            check(town, NAMED[name])
