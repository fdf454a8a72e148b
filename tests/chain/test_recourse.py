"""Convictions and demands at every stage of a job: contract and reference do the same."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis.strategies import integers, sampled_from

from tests.chain import summoned
from tests.chain.casework import Case, Plan, sealed
from tests.chain.conftest import Net
from tests.chain.test_endings import openly
from tests.chain.town import CONFIG, Town, inhabited
from tests.reference import Network, Refused
from tests.reference.convictions import SCHEDULER
from verillm.chain.reads import Status
from verillm.codec import bundle_chunks
from verillm.types import Reason

SIZE = 3
STAGES = [
    Status.SUMMONED,
    Status.SEALED,
    Status.CLAIMED,
    Status.DEMANDED,
    Status.CHALLENGED,
    Status.JUDGED,
    Status.FINAL,
]


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed) as made:
        yield made


def brought_to(town: Town, stage: Status, plan: Plan) -> Case:
    """A job at this stage; forced ones are challenged freely, others with a bond."""
    here, work, auditor = town.beside, town.work, town.auditor.address
    case = town.post(town.draft(plan))
    if stage is Status.SUMMONED:
        return asked(town, case)
    town.seal(case)
    if stage is Status.SEALED:
        return case
    town.claim(case)
    if stage is Status.DEMANDED:
        here.must(auditor, "demand", *work.record(case))
    if not stage.has_reached(Status.CHALLENGED):
        return case
    here.must(auditor, "challenge", *work.record(case))
    if stage is Status.CHALLENGED:
        return case
    openly(town, case, frozenset({2}) if plan.nan else frozenset())
    here.pass_time(2 * CONFIG.opening_window)
    here.must(auditor, "adjudicate", *work.record(case))
    if stage is Status.FINAL:
        here.pass_time(CONFIG.dispute_window)
        here.must(auditor, "settle", *work.record(case))
    return case


def asked(town: Town, case: Case) -> Case:
    """A member is summoned where the job could have been sealed; the seal that was not is known."""
    with town.beside.undone():
        town.seal(case)
    values = summoned.summons(town.work, case, 0)
    town.beside.must(case.scheduler.address, "summon", *values)
    return case


@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@example(stage=Status.SUMMONED, party=0, plan=Plan(), finder=0, stake=0)
@given(
    stage=sampled_from(STAGES),
    party=sampled_from([0, 0, SCHEDULER, SCHEDULER, 1, 3, 4]),
    plan=sampled_from([Plan(), Plan(wrong=frozenset({0})), Plan(nan=frozenset({1}))]),
    finder=integers(0, 8),
    stake=sampled_from([0, 0, 9_500]),
)
def test_a_proof_costs_what_the_reference_says_at_every_stage(
    town: Town, stage: Status, party: int, plan: Plan, finder: int, stake: int
) -> None:
    here = town.beside
    with here.undone():
        case = brought_to(town, stage, plan)
        if stake:  # what is on its way out is slashable like the rest
            here.send(town.workers[0].address, "request_stake_withdrawal", stake)
        values = [*town.work.record(case), party, Reason.LENGTH, town.operators[finder].address]
        first = here.send(town.prover, "convict", *values)
        here.compare()
        again = here.send(town.prover, "convict", *values)
        assert first.error is not None or again.error == "AlreadyConvicted"
        here.compare()
        here.pass_time(CONFIG.unbonding)
        here.send(town.prover, "convict", *[*values[:3], SCHEDULER, *values[4:]])
        here.compare()


def demanded(town: Town, requests: int = 1) -> Case:
    case = town.claim(town.seal(town.post(town.draft(Plan(requests)))))
    town.beside.must(town.auditor.address, "demand", *town.work.record(case))
    return case


def test_a_bundle_of_two_chunks_answers_a_demand_once_both_are_there(town: Town) -> None:
    here, auditor = town.beside, town.auditor.address
    with here.undone():
        case = demanded(town, requests=3)
        assert len(bundle_chunks(case.evidence)) == 2
        here.must(auditor, "serve_bundle", *town.work.serve_bundle(case, 1))
        here.must(auditor, "serve_bundle", *town.work.serve_bundle(case, 1))
        assert here.reference.job_state(town.work.id_of(case)).status is Status.DEMANDED
        here.must(auditor, "serve_bundle", *town.work.serve_bundle(case, 0))
        assert here.reference.job_state(town.work.id_of(case)).status is Status.CLAIMED
        assert here.send(auditor, "demand", *town.work.record(case)).error == "AlreadyServed"
        here.compare()


def test_three_unanswered_demands_are_all_that_a_job_sees(town: Town) -> None:
    here, auditor = town.beside, town.auditor.address
    with here.undone():
        case = town.seal(town.post(town.draft(Plan())))
        for demands in range(3):
            town.claim(case)
            here.must(auditor, "demand", *town.work.record(case))
            assert here.send(auditor, "void_claim", *town.work.record(case)).error is not None
            if demands == 0:
                here.forget(sealed(case).sealed_block)  # what is void leaves its beacon kept
            here.pass_time(CONFIG.opening_window)
            said = here.must(auditor, "void_claim", *town.work.record(case))
            town.took(case, said.events)
        town.claim(case)
        assert here.send(auditor, "demand", *town.work.record(case)).error == "TooManyDemands"
        here.compare()


# ── Power: one rule broken in the reference is seen ─────────────────────────────────────────────
def pays_no_demand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Network, "_return_bonds", lambda *_: None)


def forgets_who_was_punished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Network, "_punish", lambda *_: None)


def forces_no_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Network, "_is_forced", lambda *_: False)


def judged_is_settled(patch: pytest.MonkeyPatch) -> None:
    judge = Network._judge

    def wrong(self: Network, record: Any) -> None:
        judge(self, record)
        self._conclude(record)

    patch.setattr(Network, "_judge", wrong)


def blames_the_record(patch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> None:
        raise Refused("RecordMismatch")

    patch.setattr(Network, "_sealed", wrong)


@pytest.mark.parametrize(
    ("wrong", "stage"),
    [
        (blames_the_record, Status.SUMMONED),
        (pays_no_demand, Status.DEMANDED),
        (forgets_who_was_punished, Status.SEALED),
        (judged_is_settled, Status.JUDGED),
        (forces_no_round, Status.FINAL),
    ],
)
def test_power_a_wrong_rule_of_recourse_is_seen(
    town: Town, wrong: Callable[[pytest.MonkeyPatch], None], stage: Status
) -> None:
    def walk(jobs: int) -> None:
        for _ in range(jobs):
            with town.beside.undone():
                case = brought_to(town, stage, Plan())
                values = (*town.work.record(case), 0, Reason.LENGTH, town.auditor.address)
                for _ in range(2):
                    town.beside.send(town.prover, "convict", *values)
                town.beside.compare()

    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            walk(16 if stage is Status.FINAL else 1)  # one in `forced_every` has its round forced
    walk(1)
