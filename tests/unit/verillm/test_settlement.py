from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from verillm.errors import InputError
from verillm.settlement import (
    BPS,
    Claim,
    Ending,
    Judged,
    Settlement,
    Stakes,
    Terms,
    Way,
    adjudicate,
    bond_of,
    could_pay,
    fee_of,
    least_lock,
    punished,
    settle,
)
from verillm.types import Outcome, Reason

TERMS = Terms(15_000, 7_000, 2_000, 1_000, caller_fee=3, claim_bond=500, challenge_bond=901)
AMOUNT = st.integers(0, 2**90)
_OTHERS = (Way.UNSEALED, Way.AT_SCHEDULER, Way.DISMISSED)
SEALED = [way for way in Way if way not in _OTHERS]
VERDICTS = [Outcome.ACCEPT, Outcome.REFUND, Outcome.SLASH, Outcome.INCONCLUSIVE]


def stakes(max_fee: int = 1_003, fee: int = 1_001, members: int = 3) -> Stakes:
    lock = least_lock(max_fee, TERMS.kappa_bps)
    return Stakes(max_fee, fee, lock, bond_of(lock, max_fee), (lock,) * members)


def end(outcome: Outcome, way: Way = Way.FINALIZED, lost: tuple[int, ...] = ()) -> Settlement:
    return settle(TERMS, stakes(), Ending(outcome, way, frozenset(lost)))


@st.composite
def any_terms(draw: st.DrawFn) -> Terms:
    inferencer = draw(st.integers(1, BPS - 1))
    committee = draw(st.integers(1, BPS - inferencer))
    return Terms(
        kappa_bps=draw(st.integers(BPS, 65_535)),
        inferencer_bps=inferencer,
        committee_bps=committee,
        scheduler_bps=BPS - inferencer - committee,
        caller_fee=draw(AMOUNT),
        claim_bond=draw(AMOUNT) + 1,
        challenge_bond=draw(AMOUNT) + 1,
    )


@st.composite
def any_end(draw: st.DrawFn) -> tuple[Terms, Stakes, Ending]:
    terms = draw(any_terms())
    max_fee = draw(AMOUNT)
    fee = draw(st.integers(0, max_fee))
    lock = least_lock(max_fee, terms.kappa_bps) + draw(AMOUNT)
    bond = bond_of(lock, max_fee)
    if draw(st.booleans()):
        way, lost = Way.UNSEALED, frozenset[int]()
        return terms, Stakes(max_fee, 0, lock, bond, ()), Ending(Outcome.REFUND, way, lost)
    locks = tuple(draw(st.lists(st.integers(0, lock), min_size=1, max_size=7)))
    lost = draw(st.frozensets(st.integers(0, len(locks))))
    unpaid = draw(st.frozensets(st.integers(1, len(locks))))
    if draw(st.booleans()):
        ending = Ending(Outcome.REFUND, Way.DISMISSED, lost, unpaid)
        return terms, Stakes(max_fee, 0, lock, bond, locks), ending
    bonded, forced = draw(st.booleans()), draw(st.booleans())
    way, outcome = draw(st.sampled_from(SEALED)), draw(st.sampled_from(VERDICTS))
    if draw(st.booleans()):
        way, outcome = Way.AT_SCHEDULER, Outcome.REFUND
    ending = Ending(outcome, way, lost, unpaid, bonded, forced)
    return terms, Stakes(max_fee, fee, lock, bond, locks), ending


@given(any_end())
def test_whatever_happens_money_in_is_money_out_and_burnt(
    case: tuple[Terms, Stakes, Ending],
) -> None:
    _, held, _ = case
    assert settle(*case).total == held.max_fee


@given(any_end())
def test_no_party_loses_more_than_it_locked(case: tuple[Terms, Stakes, Ending]) -> None:
    terms, held, _ = case
    result = settle(*case)
    assert result.client >= 0 and result.caller >= 0 and result.burnt >= 0
    assert result.inferencer >= -held.lock
    assert result.scheduler >= -held.bond
    assert result.claimer >= -terms.claim_bond
    assert result.challenger >= -terms.challenge_bond
    for net, lock in zip(result.committee, held.locks, strict=False):
        assert net >= -lock


@given(any_end())
def test_nobody_profits_by_convicting_beyond_fee_and_bond(
    case: tuple[Terms, Stakes, Ending],
) -> None:
    terms, held, ending = case
    result = settle(*case)
    assert result.finder <= held.fee
    if ending.outcome == Outcome.SLASH:
        found = result.challenger + result.claimer + result.finder
        assert found <= held.fee + terms.claim_bond
        assert result.client <= held.max_fee + terms.challenge_bond + terms.claim_bond


def test_accept_pays_by_basis_points_and_gives_dust_to_the_scheduler() -> None:
    # 1001: 700 to the inferencer, 200 // 3 = 66 to each member, 103 left, 3 to each caller.
    assert end(Outcome.ACCEPT) == Settlement(
        client=2, inferencer=700, committee=(66,) * 3, scheduler=97, claimer=3, caller=3
    )


def test_the_share_of_a_silent_member_goes_to_the_client_and_its_lock_burns() -> None:
    lock = stakes().lock
    result = end(Outcome.ACCEPT, Way.UNCLAIMED, (2,))
    # 500 // 3 of what the scheduler forfeits to each that opened, 2 left.
    assert result.committee == (66 + 166, -lock, 66 + 166)
    assert (result.client, result.burnt) == (2 + 66 + 2, lock)
    assert (result.claimer, result.challenger) == (0, 0)


def test_refund_pays_the_committee_from_the_inferencers_lock() -> None:
    assert end(Outcome.REFUND) == Settlement(client=1_003, inferencer=-198, committee=(66,) * 3)


def test_slash_pays_the_finder_at_most_the_fee_and_burns_the_rest() -> None:
    result = end(Outcome.SLASH)
    lock = stakes().lock
    assert (result.client, result.inferencer, result.claimer) == (1_003, -lock, 1_001)
    assert result.burnt == lock - 198 - 1_001


def test_inconclusive_pays_the_committee_from_escrow_and_nobody_else() -> None:
    assert end(Outcome.INCONCLUSIVE) == Settlement(client=805, committee=(66,) * 3)


def test_an_overturned_claim_pays_its_bond_and_the_finders_fee_to_the_challenger() -> None:
    result = end(Outcome.SLASH, Way.OVERTURNED)
    assert result.claimer == -TERMS.claim_bond
    assert result.challenger == TERMS.claim_bond + 1_001


@pytest.mark.parametrize(
    ("way", "claimer", "challenger", "won"),
    [
        (Way.FINALIZED, 0, 0, 0),
        (Way.CONVICTED, 0, 0, 0),
        (Way.OVERTURNED, -500, 0, 500),
        (Way.UPHELD, 0, -901, 901),
    ],
)
def test_who_asked_for_the_second_round_wins_what_a_challenger_would(
    way: Way, claimer: int, challenger: int, won: int
) -> None:
    ending = Ending(Outcome.SLASH, way, appealed=True)
    result, lock = settle(TERMS, stakes(), ending), stakes().lock
    assert (result.claimer, result.challenger, result.finder) == (claimer, challenger, 1_001 + won)
    assert (result.committee, result.inferencer) == ((66,) * 3, -lock)
    assert (result.client, result.burnt) == (1_003, lock - 198 - 1_001)


def test_the_finder_of_an_unclaimed_cheat_is_the_challenger() -> None:
    result = end(Outcome.SLASH, Way.UNCLAIMED)
    assert result.challenger == 1_001
    assert (result.claimer, result.scheduler) == (0, -TERMS.claim_bond)
    assert result.committee == (66 + 125,) * 3


@pytest.mark.parametrize(
    ("lost", "inferencer", "committee"),
    [
        ((0,), 0, (166, 166, 166)),
        ((1,), 166, (-1_505, 166, 166)),
        ((0, 1, 2), 0, (-1_505, -1_505, 500)),
        ((0, 1, 2, 3), 0, (-1_505,) * 3),
    ],
    ids=str,
)
def test_what_a_scheduler_forfeits_goes_to_those_that_opened_alone(
    lost: tuple[int, ...], inferencer: int, committee: tuple[int, ...]
) -> None:
    free = replace(stakes(), fee=0)
    result = settle(TERMS, free, Ending(Outcome.ACCEPT, Way.UNCLAIMED, frozenset(lost)))
    assert (result.inferencer, result.committee) == (inferencer, committee)
    assert result.client == 1_003 + 500 - inferencer - sum(pay for pay in committee if pay > 0)


def test_callers_share_what_the_schedulers_share_has() -> None:
    small = Stakes(23, 23, 35, bond_of(35, 23), (35,) * 3)
    result = settle(TERMS, small, Ending(Outcome.ACCEPT, Way.FINALIZED))
    # 23: 16 to the inferencer, 1 to each member, 4 left, 2 to each caller, none to the scheduler.
    assert (result.scheduler, result.claimer, result.caller) == (0, 2, 2)
    # 24: 16 to the inferencer, 1 to each member, 5 left: what cannot be halved is the scheduler's.
    small = Stakes(24, 24, 36, bond_of(36, 24), (36,) * 3)
    result = settle(TERMS, small, Ending(Outcome.ACCEPT, Way.FINALIZED))
    assert (result.scheduler, result.claimer, result.caller) == (1, 2, 2)


def test_a_wrong_challenge_pays_those_that_opened_and_the_rest_to_the_client() -> None:
    result = end(Outcome.ACCEPT, Way.UPHELD)
    assert result.challenger == -901
    assert (result.inferencer, result.committee) == (700 + 225, (66 + 225,) * 3)
    assert result.client == 2 + 1


def test_an_unpaid_members_share_goes_back_to_who_would_have_paid_it() -> None:
    def ended(outcome: Outcome) -> Settlement:
        return settle(TERMS, stakes(), Ending(outcome, Way.FINALIZED, unpaid=frozenset({3})))

    assert ended(Outcome.ACCEPT).committee == (66, 66, 0)
    assert ended(Outcome.ACCEPT).client == 2 + 66
    assert ended(Outcome.INCONCLUSIVE).client == 1_003 - 2 * 66
    assert ended(Outcome.REFUND).inferencer == -2 * 66
    assert ended(Outcome.SLASH).burnt == end(Outcome.SLASH).burnt + 66


@pytest.mark.parametrize("way", [Way.FINALIZED, Way.LOST])
def test_a_silent_members_lock_burns_though_nothing_is_decided(way: Way) -> None:
    result, without = end(Outcome.INCONCLUSIVE, way, (2,)), end(Outcome.INCONCLUSIVE, way)
    assert result.committee == (66, -stakes().lock, 66)
    assert (result.burnt, without.burnt) == (stakes().lock, 0)
    assert result.client + result.scheduler == without.client + without.scheduler + 66


def test_a_lost_beacon_refunds_and_the_scheduler_pays_the_committee() -> None:
    lost = end(Outcome.INCONCLUSIVE, Way.LOST)
    assert lost == Settlement(client=1_003, committee=(66,) * 3, scheduler=-198)


def test_unsealed_refunds_and_pays_the_worker_from_the_bond() -> None:
    held = Stakes(1_003, 0, 1_505, bond_of(1_505, 1_003), ())
    result = settle(TERMS, held, Ending(Outcome.REFUND, Way.UNSEALED))
    assert (result.client, result.inferencer) == (1_003, 702)
    assert (result.scheduler, result.burnt) == (-held.bond, held.bond - 702)


def test_dismissed_pays_who_answered_and_burns_the_locks_of_the_silent() -> None:
    held = Stakes(1_003, 0, 1_505, bond_of(1_505, 1_003), (1_505, 1_505, 0))
    ending = Ending(Outcome.REFUND, Way.DISMISSED, frozenset({2}), frozenset({3}))
    result = settle(TERMS, held, ending)
    assert (result.client, result.inferencer) == (1_003, 702)
    assert result.committee == (66, -1_505, 0)
    assert result.burnt == held.bond - 702 - 66 + 1_505
    with pytest.raises(InputError):
        settle(TERMS, held, Ending(Outcome.ACCEPT, Way.DISMISSED))
    with pytest.raises(InputError):
        settle(TERMS, replace(held, locks=()), Ending(Outcome.REFUND, Way.DISMISSED))


TOKENS = Claim(Outcome.SLASH, Reason.MARGIN_MAX)
STATES = Claim(Outcome.SLASH, Reason.STATES_DIFFER)
ACCEPTED = Claim(Outcome.ACCEPT, Reason.NONE)
WITHHELD = Claim(Outcome.SLASH, Reason.WITHHELD)


def some(*parties: int) -> frozenset[int]:
    return frozenset(parties)


@pytest.mark.parametrize(
    ("claim", "judged", "attested", "outcome", "way"),
    [
        # A slash for tokens is never more than a refund once it is challenged.
        (TOKENS, Judged(Outcome.ACCEPT), Reason.NONE, Outcome.REFUND, Way.UPHELD),
        (TOKENS, Judged(Outcome.INCONCLUSIVE), Reason.NONE, Outcome.REFUND, Way.UPHELD),
        (TOKENS, Judged(Outcome.SLASH, some(0)), Reason.NONE, Outcome.SLASH, Way.UPHELD),
        (TOKENS, Judged(Outcome.REFUND), Reason.NONE, Outcome.REFUND, Way.OVERTURNED),
        # A challenger that brings the committee's word undoes an acceptance of wrong tokens.
        (ACCEPTED, Judged(Outcome.ACCEPT), Reason.NONE, Outcome.ACCEPT, Way.UPHELD),
        (ACCEPTED, Judged(Outcome.ACCEPT), Reason.LENGTH, Outcome.REFUND, Way.OVERTURNED),
        (None, Judged(Outcome.ACCEPT), Reason.LENGTH, Outcome.REFUND, Way.UNCLAIMED),
        (None, Judged(Outcome.SLASH), Reason.NONE, Outcome.SLASH, Way.UNCLAIMED),
        # The outcome counts, not the reason.
        (STATES, Judged(Outcome.SLASH), Reason.NONE, Outcome.SLASH, Way.UPHELD),
        (STATES, Judged(Outcome.REFUND), Reason.NONE, Outcome.REFUND, Way.OVERTURNED),
        # Nobody can show that openings were not to be had.
        (WITHHELD, Judged(Outcome.ACCEPT), Reason.NONE, Outcome.ACCEPT, Way.OPENED),
        (WITHHELD, Judged(Outcome.SLASH, some(0)), Reason.NONE, Outcome.SLASH, Way.UPHELD),
    ],
)
def test_the_public_round_weighs_the_claim(
    claim: Claim | None, judged: Judged, attested: Reason, outcome: Outcome, way: Way
) -> None:
    assert adjudicate(claim, judged, attested) == Ending(outcome, way, judged.lost, judged.unpaid)


@pytest.mark.parametrize(
    ("claimed", "judged", "lost", "right"),
    [
        (some(), some(), some(), True),
        (some(), some(2), some(), False),  # pays a liar
        (some(2), some(), some(), False),  # leaves an honest member out
        (some(3), some(2, 3), some(3), False),
        (some(2), some(2, 3), some(3), True),  # who fell silent only now is nobody's fault
        (some(2, 3), some(3), some(3), True),
    ],
)
def test_a_claim_is_wrong_where_it_pays_the_wrong_members(
    claimed: frozenset[int], judged: frozenset[int], lost: frozenset[int], right: bool
) -> None:
    claim = Claim(Outcome.ACCEPT, Reason.NONE, claimed)
    ending = adjudicate(claim, Judged(Outcome.ACCEPT, lost, judged))
    assert ending.way is (Way.UPHELD if right else Way.OVERTURNED)


@pytest.mark.parametrize("claim", [None, Claim(Outcome.ACCEPT, Reason.NONE, some(3)), ACCEPTED])
def test_who_lost_and_who_is_not_paid_is_what_the_round_saw(claim: Claim | None) -> None:
    ending = adjudicate(claim, Judged(Outcome.ACCEPT, some(2), some(3)))
    assert (ending.lost, ending.unpaid) == (some(2), some(3))


def test_a_false_claim_of_withheld_burns_half_its_bond_and_enriches_nobody() -> None:
    opened = end(Outcome.SLASH, Way.OPENED)
    assert (opened.claimer, opened.challenger) == (-(TERMS.claim_bond // 2), 1_001)
    accepted, finalized = end(Outcome.ACCEPT, Way.OPENED), end(Outcome.ACCEPT, Way.FINALIZED)
    assert accepted.claimer == -(TERMS.claim_bond // 2)
    assert accepted.challenger == 0
    assert accepted.burnt == finalized.burnt + TERMS.claim_bond // 2
    assert accepted.committee == finalized.committee


def test_half_of_an_odd_bond_burns_rounded_up() -> None:
    odd = replace(TERMS, claim_bond=501)
    opened = settle(odd, stakes(), Ending(Outcome.ACCEPT, Way.OPENED))
    assert (opened.claimer, opened.burnt) == (-251, 251)


def test_a_finder_gets_no_more_than_the_committee_leaves_of_the_lock() -> None:
    bare = Stakes(1_000, 1_000, 1_000, bond_of(1_000, 1_000), (1_000,) * 3)
    slashed = settle(TERMS, bare, Ending(Outcome.SLASH, Way.FINALIZED))
    assert (slashed.committee, slashed.claimer, slashed.burnt) == ((66,) * 3, 1_000 - 198, 0)


def test_fee_is_capped_and_demands_round_up() -> None:
    assert [fee_of(3, 10, 5, cap) for cap in (44, 45, 46)] == [44, 45, 45]
    assert least_lock(3, 10_001) == 4
    assert bond_of(1, 0) == 2


@pytest.mark.parametrize(
    ("max_fee", "due", "pays"),
    [(45, 50, True), (44, 50, False), (30, 30, True), (29, 30, False)],
)
def test_a_max_fee_pays_for_work_that_covers_its_tokens_or_what_is_due(
    max_fee: int, due: int, pays: bool
) -> None:
    assert could_pay(max_fee, 3, 15, due) is pays


@pytest.mark.parametrize(
    "make",
    [
        lambda: Terms(9_999, 7_000, 2_000, 1_000, 0, 1, 1),
        lambda: Terms(10_000, 7_000, 2_000, 1_001, 0, 1, 1),
        lambda: Terms(10_000, 7_000, 3_000, 0, 0, 0, 1),
        lambda: Terms(10_000, 11_000, 2_000, -3_000, 0, 1, 1),
        lambda: Terms(10_000, 0, 9_000, 1_000, 0, 1, 1),
        lambda: Terms(10_000, 9_000, 0, 1_000, 0, 1, 1),
        lambda: Terms(10_000, 7_000, 2_000, 1_000, 0, 0, 1),
        lambda: Terms(10_000, 7_000, 2_000, 1_000, 0, 1, 0),
        lambda: Terms(10_000, 7_000, 2_000, 1_000, -1, 1, 1),
        lambda: Stakes(10, -1, 20, 40, (1,)),
        lambda: Stakes(10, 10, 9, 40, (1,)),
        lambda: Stakes(10, 10, 20, 38, (-1,)),
        lambda: Stakes(10, 11, 20, 40, (1,)),
        lambda: Stakes(10, 10, 20, 37, (1,)),
        lambda: Stakes(10, 10, 20, 38, (21,)),
        lambda: settle(TERMS, stakes(members=0), Ending(Outcome.ACCEPT, Way.FINALIZED)),
        lambda: settle(TERMS, stakes(), Ending(Outcome.NONE, Way.FINALIZED)),
        lambda: settle(TERMS, stakes(), Ending(Outcome.ACCEPT, Way.UNSEALED)),
        lambda: settle(TERMS, stakes(), Ending(Outcome.ACCEPT, Way.UPHELD, frozenset({4}))),
    ],
)
def test_what_the_contract_cannot_hold_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(InputError):
        make()


def test_what_the_contract_can_just_hold_is_taken() -> None:
    assert Terms(10_000, 1, 9_999, 0, 0, 1, 1).kappa_bps == BPS
    assert Terms(10_000, 9_999, 1, 0, 0, 1, 1).scheduler_bps == 0
    assert Stakes(0, 0, 0, 0, (0,)).locks == (0,)
    assert Stakes(10, 10, 10, 25, (10, 0)).locks == (10, 0)


def test_a_forced_round_pays_the_schedulers_share_to_who_opened() -> None:
    forced = Ending(Outcome.ACCEPT, Way.UPHELD, some(2), bonded=False, forced=True)
    result = settle(TERMS, stakes(), forced)
    # 97 left of the scheduler's share: 32 to each of the three that opened, 1 to the client.
    assert (result.scheduler, result.inferencer) == (0, 700 + 32)
    assert result.committee == (66 + 32, -stakes().lock, 66 + 32)
    assert (result.client, result.challenger) == (2 + 66 + 1, 0)


def test_a_challenge_without_bond_has_none_to_lose() -> None:
    free = settle(TERMS, stakes(), Ending(Outcome.ACCEPT, Way.UPHELD, bonded=False))
    assert free == end(Outcome.ACCEPT)


def test_a_convicted_inferencer_loses_its_lock_to_finder_committee_and_fire() -> None:
    result, lock = end(Outcome.SLASH, Way.CONVICTED), stakes().lock
    assert (result.client, result.inferencer, result.finder) == (1_003, -lock, 1_001)
    assert (result.claimer, result.challenger) == (0, 0)
    assert (result.committee, result.burnt) == ((66,) * 3, lock - 198 - 1_001)


def test_a_convicted_scheduler_pays_who_worked_and_the_finder() -> None:
    result, bond = end(Outcome.REFUND, Way.AT_SCHEDULER), stakes().bond
    assert (result.client, result.inferencer, result.scheduler) == (1_003, 700, -bond)
    assert (result.committee, result.finder) == ((66,) * 3, 1_001)
    assert result.burnt == bond - 700 - 198 - 1_001


@pytest.mark.parametrize(("silent", "worker"), [(0, 0), (1, 700)])
def test_who_fell_silent_is_not_paid_by_a_convicted_scheduler(silent: int, worker: int) -> None:
    result = end(Outcome.REFUND, Way.AT_SCHEDULER, (silent,))
    assert result.inferencer == worker
    assert result.committee == tuple(-1_505 if k == silent else 66 for k in (1, 2, 3))


@given(st.integers(0, 2**96), st.integers(0, 2**96))
def test_after_the_end_a_conviction_takes_what_is_free_up_to_the_lock(lock: int, free: int) -> None:
    taken = punished(stakes(), lock, free)
    assert taken.finder + taken.burnt == min(lock, free)
    assert taken.finder == min(lock, free, stakes().fee)
