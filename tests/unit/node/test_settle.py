import itertools
from dataclasses import replace

import pytest

from verillm.chain.contract import Status
from verillm_node.settle import KEEP_BELOW, Known, Seen, Step, next_step

DEADLINE, UNTIL = 1_000, 2_000
NOTHING = Known(inferred=False, verified=False, overdue=False, judged=False, deadline=DEADLINE)
INFERRED = Known(inferred=True, verified=False, overdue=False, judged=False, deadline=DEADLINE)
CLAIMED = replace(INFERRED, claimed=True)
OVERDUE = replace(INFERRED, overdue=True)
VERIFIED = Known(inferred=True, verified=True, overdue=True, judged=False, deadline=DEADLINE)
JUDGED = Known(inferred=True, verified=True, overdue=True, judged=True, deadline=DEADLINE)


@pytest.mark.parametrize(
    ("known", "status", "now", "step"),
    [
        (NOTHING, Status.NONE, DEADLINE - 1, Step.INFER),
        (NOTHING, Status.NONE, DEADLINE, Step.GIVE_UP),
        (INFERRED, Status.NONE, DEADLINE - 1, Step.POST),
        (INFERRED, Status.NONE, DEADLINE, Step.GIVE_UP),
        (CLAIMED, Status.NONE, DEADLINE, Step.POST_CLAIMED),
        (CLAIMED, Status.POSTED, UNTIL - 1, Step.VERIFY),
        (INFERRED, Status.POSTED, UNTIL - 1, Step.VERIFY),
        (VERIFIED, Status.POSTED, UNTIL - 1, Step.SEAL),
        (OVERDUE, Status.POSTED, UNTIL - 1, Step.SUMMON),
        (INFERRED, Status.POSTED, UNTIL, Step.REFUND),
        (INFERRED, Status.SUMMONED, UNTIL - 1, Step.SUMMON),
        (VERIFIED, Status.SUMMONED, UNTIL - 1, Step.SEAL),
        (VERIFIED, Status.SUMMONED, UNTIL, Step.DISMISS),
        (OVERDUE, Status.SUMMONED, UNTIL, Step.DISMISS),
        (VERIFIED, Status.POSTED, UNTIL, Step.REFUND),
        (VERIFIED, Status.SEALED, UNTIL - 1, Step.JUDGE),
        (JUDGED, Status.SEALED, UNTIL - 1, Step.CLAIM),
        (JUDGED, Status.SEALED, UNTIL, Step.CLAIM),
        (JUDGED, Status.CLAIMED, UNTIL - 1, Step.WAIT),
        (JUDGED, Status.CLAIMED, UNTIL, Step.FINALIZE),
        (JUDGED, Status.CHALLENGED, UNTIL - 1, Step.DEFEND),
        (JUDGED, Status.CHALLENGED, UNTIL, Step.DEFEND),
        (JUDGED, Status.DEMANDED, UNTIL - 1, Step.SERVE),
        (JUDGED, Status.DEMANDED, UNTIL, Step.VOID),
        (JUDGED, Status.JUDGED, UNTIL - 1, Step.WAIT),
        (JUDGED, Status.JUDGED, UNTIL, Step.SETTLE),
        (JUDGED, Status.REVERIFYING, UNTIL, Step.WAIT),
        (JUDGED, Status.FINAL, UNTIL, Step.CLOSE),
    ],
)
def test_each_state_has_one_next_step(known: Known, status: Status, now: int, step: Step) -> None:
    assert next_step(known, Seen(status, UNTIL, now)) is step


@pytest.mark.parametrize("now", [UNTIL - 1, UNTIL])
def test_a_forced_round_is_opened_in_place_of_finalizing(now: int) -> None:
    for status in Status:
        plain, forced = (
            next_step(JUDGED, Seen(status, UNTIL, now, is_forced=each)) for each in (False, True)
        )
        assert forced is (Step.OPEN if plain is Step.FINALIZE else plain)


def test_a_post_that_the_chain_lost_is_posted_again() -> None:
    """A reorganisation, or an Anvil that came back a second older, needs no code of its own."""
    assert next_step(JUDGED, Seen(Status.NONE, 0, DEADLINE - 1)) is Step.POST


@pytest.mark.parametrize("status", [Status.POSTED, Status.SEALED])
def test_a_beacon_is_kept_before_the_chain_forgets_it(status: Status) -> None:
    for known in (INFERRED, JUDGED):
        assert next_step(known, Seen(status, UNTIL, 0, KEEP_BELOW - 1)) is Step.KEEP
        assert next_step(known, Seen(status, UNTIL, 0, KEEP_BELOW)) is not Step.KEEP
        assert next_step(known, Seen(status, UNTIL, 0, None)) is not Step.KEEP


def test_every_state_of_store_and_chain_has_a_step() -> None:
    bools = (False, True)
    for inferred, verified, overdue, judged in itertools.product(bools, bools, bools, bools):
        known = Known(inferred, verified, overdue, judged, DEADLINE)
        for status, now in itertools.product(Status, (0, DEADLINE, UNTIL)):
            assert next_step(known, Seen(status, UNTIL, now)) in Step


def test_no_money_moves_before_a_worker_has_committed() -> None:
    for now in range(0, 2 * DEADLINE, 100):
        assert next_step(NOTHING, Seen(Status.NONE, 0, now)) in (Step.INFER, Step.GIVE_UP)
