"""Jobs on a network of processes: paid when honest, and finished whoever is killed."""

import pytest

from verillm.chain.events import Slashed
from verillm.types import Outcome, Reason

from .conftest import Town

pytestmark = pytest.mark.slow


def _everyone() -> list[str]:
    return ["worker1", "worker2", "worker3", "worker4", "scheduler", "anvil"]


def _assert_accepted(town: Town, handle: object) -> None:
    history = town.final(handle)  # type: ignore[arg-type]
    assert history.finalized is not None
    said = (history.finalized.event.outcome, history.finalized.event.reason)
    assert said == (Outcome.ACCEPT, Reason.NONE), town.logs()
    assert history.all(Slashed) == ()


def test_an_honest_job_is_paid_by_the_shares(honest_town: Town) -> None:
    before = honest_town.balances()
    handle = honest_town.buy()
    handle.read()
    receipt = handle.verify_receipt()
    assert receipt.receipt.job_id == handle.job_id
    _assert_accepted(honest_town, handle)
    history = honest_town.final(handle)
    assert history.posted is not None
    assert history.sealed is not None
    fee = history.sealed.event.sealing.fee
    worker = honest_town.name_of(history.posted.event.posting.worker)
    gained = {name: now - before[name] for name, now in honest_town.balances().items()}
    assert gained[worker] == fee * 7_500 // 10_000
    assert sum(gained.values()) == fee
    assert handle.verify_receipt().sealed


@pytest.mark.parametrize("victim", _everyone())
def test_a_job_survives_the_death_of_any_process_at_its_first_token(
    honest_town: Town, victim: str
) -> None:
    handle = honest_town.buy(tokens=150)
    tokens = handle.tokens()
    next(tokens)
    honest_town.kill(victim)
    heard = 1 + sum(1 for _ in tokens)
    assert heard == len(handle.outputs[0])
    _assert_accepted(honest_town, handle)


@pytest.mark.parametrize("victim", _everyone())
def test_a_job_survives_the_death_of_any_process_once_posted(
    honest_town: Town, victim: str
) -> None:
    handle = honest_town.buy()
    handle.read()
    honest_town.history(handle, lambda found: found.posted)
    honest_town.kill(victim)
    _assert_accepted(honest_town, handle)


@pytest.mark.parametrize("victim", ["scheduler", "anvil"])
@pytest.mark.parametrize("stage", ["sealed", "claimed"])
def test_a_job_survives_a_death_at_any_later_stage(
    honest_town: Town, victim: str, stage: str
) -> None:
    handle = honest_town.buy()
    handle.read()
    honest_town.history(handle, lambda found: getattr(found, stage))
    honest_town.kill(victim)
    _assert_accepted(honest_town, handle)


def test_many_jobs_at_once_are_all_paid(honest_town: Town) -> None:
    handles = [honest_town.buy(tokens=16, prompt=f"Number {n}.") for n in range(6)]
    for handle in handles:
        handle.read()
    for handle in handles:
        _assert_accepted(honest_town, handle)


def test_a_batch_of_requests_is_one_job(honest_town: Town) -> None:
    from verillm.client import Prompt

    prompts = [Prompt(prompt=f"Question {n}?", max_new_tokens=8) for n in range(7)]
    handle = honest_town.client.submit(requests=prompts)
    for _ in handle.tokens():
        pass
    assert len(handle.receipts) == 7
    _assert_accepted(honest_town, handle)
