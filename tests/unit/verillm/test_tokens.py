import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.verillm.builders import PROFILE, VOCABULARY, head, noisy, true_states
from verillm import tokens
from verillm.errors import EvidenceError
from verillm.head import HeadArray
from verillm.request import Sampling
from verillm.sampling import gumbel, scores, select, words
from verillm.statistics import to_floats
from verillm.tokens import (
    NO_RIVAL,
    Borders,
    Generated,
    TokenStatistics,
    averaged_leads,
    judge_tokens,
    margins,
    token_statistics,
    votes,
)
from verillm.types import Floats, Hash32, Outcome, Reason

SEED = Hash32(bytes(range(32)))
BORDERS = Borders(0.01, 0.5)


def by_definition(
    logits: list[float], token: int, sampling: Sampling, position: int
) -> tuple[float, float, bool]:
    """Section 7 of the protocol, entry by entry, with margins in logits."""
    temperature = sampling.temperature / 1e6
    noise = gumbel(words(SEED, position, np.arange(len(logits))))
    score = [
        float(np.float32(x) + np.float32(temperature) * g)
        for x, g in zip(logits, noise, strict=True)
    ]
    clearly = [v for v in range(len(logits)) if logits[v] >= logits[token] + BORDERS.tau]
    order = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    surely, outside = list(range(len(logits))), False
    if temperature > 0:
        grown = [math.exp((x - max(logits)) / temperature) for x in logits]
        mass = [x / math.fsum(grown) for x in grown]
        above = {v: math.fsum(mass[w] for w in order[:r]) for r, v in enumerate(order)}
        top_p, min_p = sampling.top_p / 1e6, sampling.min_p / 1e6
        if top_p < 1:
            surely = [v for v in surely if above[v] < top_p - BORDERS.epsilon]
            outside |= above[token] > top_p + BORDERS.epsilon
        if sampling.top_k:
            surely = [
                v
                for v in surely
                if sum(x >= logits[v] - BORDERS.tau for x in logits) - 1 < sampling.top_k
            ]
            outside |= len(clearly) >= sampling.top_k
        if min_p:
            reach = temperature * math.log(1 / min_p)
            surely = [v for v in surely if max(logits) - logits[v] <= reach - BORDERS.tau]
            outside |= max(logits) - logits[token] > reach + BORDERS.tau
    refund = max((score[v] - score[token] for v in {*surely, *clearly}), default=0.0)
    slash = max((score[v] - score[token] for v in clearly), default=0.0)
    return max(refund, 0.0), max(slash, 0.0), outside


LOGITS = st.lists(st.integers(-24, 24).map(lambda n: n / 4 + 0.01 * n), min_size=2, max_size=16)
SAMPLINGS = st.builds(
    Sampling,
    st.sampled_from([0, 300_000, 1_000_000, 2_000_000]),
    st.sampled_from([0, 1, 2, 5, 100]),
    st.sampled_from([1, 123_457, 900_001, 1_000_000]),
    st.sampled_from([0, 12_347, 499_979]),
)


@given(LOGITS, SAMPLINGS, st.integers(0, 1000), st.data())
@settings(max_examples=300)
def test_margins_are_those_of_the_definition(
    logits: list[float], sampling: Sampling, position: int, data: st.DataObject
) -> None:
    exact = [float(np.float32(x)) for x in logits]
    token = data.draw(st.integers(0, len(logits) - 1))
    found = margins(np.array(exact, np.float32), token, sampling, SEED, position, BORDERS)
    refund, slash, outside = by_definition(exact, token, sampling, position)
    assert found[2] == outside
    assert found[0] == pytest.approx(refund * 1e6, abs=3)
    assert found[1] == pytest.approx(slash * 1e6, abs=3)


@given(st.integers(0, 2**32), SAMPLINGS)
@settings(max_examples=60, deadline=None)
def test_margins_over_a_large_vocabulary_are_those_of_the_definition(
    key: int, sampling: Sampling
) -> None:
    rng = np.random.default_rng(key)
    logits = (rng.standard_normal(300, np.float32) * 3).round(key % 3).astype(np.float32)
    token = int(rng.integers(300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_SORTED", (8, 64, 1024)[key // 3 % 3])
        found = margins(logits, token, sampling, SEED, key % 997, BORDERS)
    refund, slash, outside = by_definition(logits.tolist(), token, sampling, key % 997)
    assert found[2] == outside
    assert found[0] == pytest.approx(refund * 1e6, abs=3)
    assert found[1] == pytest.approx(slash * 1e6, abs=3)


@given(LOGITS, SAMPLINGS, st.integers(0, 1000))
@settings(max_examples=200)
def test_the_token_that_the_sampler_selects_has_no_margin_and_is_inside(
    logits: list[float], sampling: Sampling, position: int
) -> None:
    array = np.array(logits, np.float32)
    token = select(array, sampling, SEED, position)
    assert margins(array, token, sampling, SEED, position, BORDERS) == (0, 0, False)


def test_entries_near_the_border_of_the_nucleus_are_neither_rivals_nor_outside() -> None:
    logits = np.log(np.array([0.6, 0.295, 0.105], np.float32))
    sampling = Sampling(top_p=900_000)
    # The mass above the third is .895: kept by .005, within ε; as a rival it does not count.
    for position in range(40):
        _, _, outside = margins(logits, 2, sampling, SEED, position, BORDERS)
        assert not outside
        third = margins(logits, 0, sampling, SEED, position, Borders(0.0, 0.5))[0]
        without = margins(logits, 0, sampling, SEED, position, BORDERS)[0]
        assert without <= third


def test_a_rival_of_just_tau_above_counts_in_both_tiers_and_one_below_that_in_the_first() -> None:
    for ahead, slash in ((0.5, 500_000), (0.4375, 0)):
        logits = np.array([0.0, ahead], np.float32)
        assert margins(logits, 0, Sampling(0), SEED, 1, BORDERS) == (ahead * 1e6, slash, False)


def counts(
    logits: list[float], token: int, rival: int, sampling: Sampling, borders: Borders
) -> bool:
    """Whether a rival is counted, by the margin where its score is the best of all."""
    exact = np.array(logits, np.float32)
    ranked_at = ((at, scores(exact, sampling, SEED, at)) for at in range(10_000))
    position, ranked = next(each for each in ranked_at if int(np.argmax(each[1])) == rival)
    behind = float(ranked[rival] - ranked[token]) * 1e6
    found = margins(exact, token, sampling, SEED, position, borders)[0]
    return abs(found - behind) <= 3


def test_the_border_of_top_p_in_mass_is_no_rivals_and_nobodys_outside() -> None:
    """Two entries of half the mass each, the second with exactly the border above it."""
    alike, epsilon = [0.0, 0.0], Borders(0.1, 0.5)
    assert not counts(alike, 0, 1, Sampling(top_p=600_000), epsilon)
    assert counts(alike, 0, 1, Sampling(top_p=600_001), epsilon)
    for top_p, is_outside in ((400_000, False), (399_999, True)):
        found = margins(np.zeros(2, np.float32), 1, Sampling(top_p=top_p), SEED, 1, epsilon)
        assert found[2] is is_outside


def test_the_border_of_top_k_in_logits_is_no_rivals_and_outside_for_a_token() -> None:
    two = Sampling(top_k=2)
    assert not counts([3.0, 2.0, 1.5], 0, 1, two, BORDERS)
    assert counts([3.0, 2.0, 1.4375], 0, 1, two, BORDERS)
    for third, is_outside in ((1.5, True), (1.5625, False)):
        logits = np.array([3.0, 2.0, third], np.float32)
        assert margins(logits, 2, two, SEED, 1, BORDERS)[2] is is_outside


def test_the_border_of_min_p_in_logits_is_a_rivals_and_nobodys_outside() -> None:
    half, reach = Sampling(min_p=500_000), math.log(2)
    for more, counted in ((0.0, True), (1e-9, False)):
        assert counts([0.5, 0.0], 0, 1, half, Borders(0.0, reach - 0.5 + more)) is counted
    for less, is_outside in ((0.0, False), (1e-9, True)):
        borders = Borders(0.0, 1.0 - reach - less)
        found = margins(np.array([1.0, 0.0], np.float32), 1, half, SEED, 1, borders)
        assert found[2] is is_outside


@pytest.mark.parametrize("rank", [1, 2, 5, 100, 299])
def test_the_first_of_the_top_k_are_the_rivals_in_whatever_order_logits_come(rank: int) -> None:
    random = np.random.default_rng(rank)
    for position in range(40):
        logits: Floats = (random.permutation(1000) / 512).astype(np.float32)
        sampling, token = Sampling(2_000_000, rank), int(np.argmax(logits))
        ranked = scores(logits, sampling, SEED, position)
        first = np.argsort(-logits)[:rank]
        expected = float(ranked[first].max() - ranked[token]) * 1e6
        found = margins(logits, token, sampling, SEED, position, Borders(0.0, 0.0))
        assert found[0] == pytest.approx(expected, abs=3)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("likeliest", [8, 1024])
def test_the_likelier_and_of_alike_the_first_hold_the_mass_of_top_p(
    likeliest: int, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the mass is in more entries than are looked at first."""
    monkeypatch.setattr(tokens, "_SORTED", likeliest)
    sampling, nobody_above = Sampling(top_p=500_500), Borders(0.0, 1e9)
    for position in range(40):
        order = np.random.default_rng(position).permutation(300)
        logits: Floats = ((order % 3 if alike else order) / 256).astype(np.float32)
        ranked = scores(logits, sampling, SEED, position)
        mass = np.exp(logits.astype(np.float64))
        above = [
            mass[(logits > one) | ((logits == one) & (np.arange(300) < at))].sum() / mass.sum()
            for at, one in enumerate(logits)
        ]
        rivals = [at for at in range(300) if above[at] < 0.5005]
        token = int(np.argmax(logits))
        expected = float(ranked[rivals].max() - ranked[token]) * 1e6
        found = margins(logits, token, sampling, SEED, position, nobody_above)[0]
        assert found == pytest.approx(expected, abs=3)


def test_noise_of_a_logit_moves_no_token_over_the_border_of_min_p() -> None:
    """Measured: an honest token at 1.06 of the border by its own state, at .93 by a verifier's."""
    sampling = Sampling(800_000, min_p=50_000)
    for ratio, is_outside in ((1.06, False), (0.93, False), (0.4, True)):
        logits = np.array([0.0, 0.8 * math.log(0.05 * ratio)], np.float32)
        assert margins(logits, 1, sampling, SEED, 1, Borders(0.05, 0.4))[2] == is_outside


def test_a_token_clearly_outside_top_p_top_k_or_min_p_is_outside() -> None:
    logits = np.array([5.0, 1.0, 0.0], np.float32)
    for sampling in (Sampling(top_p=900_000), Sampling(top_k=1), Sampling(min_p=100_000)):
        assert margins(logits, 2, sampling, SEED, 1, BORDERS)[2]
        assert not margins(logits, 0, sampling, SEED, 1, BORDERS)[2]
    assert not margins(logits, 2, Sampling(), SEED, 1, BORDERS)[2]
    assert not margins(logits, 2, Sampling(0, 1, 1, 1_000_000), SEED, 1, BORDERS)[2]


def generated(
    sampling: Sampling, verifiers: int = 3, count: int = 40, spoil: int | None = None
) -> Generated:
    """An honest output of the sampler over true states, seen by noisy verifiers."""
    _, finals = true_states(b"tokens-1", count)
    logits = head().logits(to_floats(finals))
    output = [select(logits[at], sampling, SEED, 4 + at) for at in range(count)]
    if spoil is not None:
        output[spoil] = int(np.argmin(logits[spoil]))
    return Generated(
        5, tuple(output), sampling, SEED, tuple(noisy(finals, key) for key in range(verifiers))
    )


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0), Sampling.of(0.8, 20, 0.9, 0.02)])
def test_honest_outputs_under_honest_noise_are_accepted(sampling: Sampling) -> None:
    found = token_statistics([generated(sampling)], head(), PROFILE)
    assert judge_tokens(found, PROFILE) == (Outcome.ACCEPT, Reason.NONE)
    assert len(found.margins) == 40


def test_power_one_swapped_token_is_slashed_by_its_margin() -> None:
    found = token_statistics([generated(Sampling(), spoil=17)], head(), PROFILE)
    assert judge_tokens(found, PROFILE) == (Outcome.SLASH, Reason.MARGIN_MAX)
    assert max(found.margins) == found.margins[17]


def test_power_tokens_swapped_only_where_the_runner_up_is_near_are_seen_by_their_mean() -> None:
    """A cheat that stays below the largest margin at each token still pays for all of them."""
    honest, output = generated(Sampling()), []
    _, finals = true_states(b"tokens-1", 40)
    for at, logits in enumerate(head().logits(to_floats(finals))):
        ranked = scores(logits, honest.sampling, SEED, 4 + at)
        best, second = np.argsort(-ranked, kind="stable")[:2]
        near = (ranked[best] - ranked[second]) * 1e6 < 0.9 * PROFILE.margin_max_refund
        output.append(int(second if near else best))
    changed = sum(a != b for a, b in zip(output, honest.output, strict=True))
    found = token_statistics([replace(honest, output=tuple(output))], head(), PROFILE)
    assert changed >= 3 and max(found.margins) <= PROFILE.margin_max_refund
    assert judge_tokens(found, PROFILE) == (Outcome.REFUND, Reason.MARGIN_MEAN)


def test_power_a_token_outside_the_nucleus_is_refused_by_that_reason() -> None:
    sampling = Sampling.of(0.8, 0, 0.5)
    found = token_statistics([generated(sampling, spoil=3)], head(), PROFILE)
    assert 3 in found.outside
    lax = replace(PROFILE, margin_max_slash=10**9)
    assert judge_tokens(found, lax) == (Outcome.REFUND, Reason.OUTSIDE_NUCLEUS)


@pytest.mark.parametrize("claimed", [700_000, 1_400_000])
def test_power_another_temperature_than_signed_is_seen_by_margins(claimed: int) -> None:
    honest = generated(Sampling(1_000_000), count=120)
    found = token_statistics([replace(honest, sampling=Sampling(claimed))], head(), PROFILE)
    assert judge_tokens(found, PROFILE)[0] is not Outcome.ACCEPT
    assert found.mean > PROFILE.margin_mean


def test_power_another_seed_or_shifted_positions_are_seen_by_margins() -> None:
    honest = generated(Sampling())
    for cheat in (replace(honest, seed=Hash32(b"x" * 32)), replace(honest, prompt_tokens=6)):
        found = token_statistics([cheat], head(), PROFILE)
        assert judge_tokens(found, PROFILE)[0] is not Outcome.ACCEPT


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (TokenStatistics((5_000,) * 80, (0,), ()), (Outcome.ACCEPT, Reason.NONE)),
        (TokenStatistics((5_001,) * 80, (0,), ()), (Outcome.REFUND, Reason.MARGIN_MEAN)),
        (TokenStatistics((5_001,) * 63, (0,), ()), (Outcome.ACCEPT, Reason.NONE)),
        (TokenStatistics((5_001,) * 64, (0,), ()), (Outcome.REFUND, Reason.MARGIN_MEAN)),
        (TokenStatistics((5_000 * 32,) * 2, (0,), ()), (Outcome.ACCEPT, Reason.NONE)),
        (TokenStatistics((5_001 * 32,) * 2, (0,), ()), (Outcome.REFUND, Reason.MARGIN_MEAN)),
        (TokenStatistics((250_001, *[0] * 99), (0,), ()), (Outcome.REFUND, Reason.MARGIN_MAX)),
        (TokenStatistics((250_000, *[0] * 99), (0,), ()), (Outcome.ACCEPT, Reason.NONE)),
        (TokenStatistics((0,), (400_000,), ()), (Outcome.ACCEPT, Reason.NONE)),
        (TokenStatistics((0,), (400_001,), ()), (Outcome.SLASH, Reason.MARGIN_MAX)),
        (TokenStatistics((400_001,), (0,), (0,)), (Outcome.REFUND, Reason.OUTSIDE_NUCLEUS)),
        (TokenStatistics((0,), (0,), (0,)), (Outcome.REFUND, Reason.OUTSIDE_NUCLEUS)),
        (TokenStatistics((), (), ()), (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)),
    ],
)
def test_each_threshold_is_exclusive_and_has_its_own_reason(
    statistics: TokenStatistics, expected: tuple[Outcome, Reason]
) -> None:
    assert judge_tokens(statistics, PROFILE) == expected


def test_states_that_overflow_the_logits_are_missing_evidence() -> None:
    huge = np.full((40, 32), 0x7F7F, np.uint16)
    bad = replace(generated(Sampling()), finals=(huge,))
    with pytest.raises(EvidenceError, match="too few verifiers' states") as raised:
        token_statistics([bad], head(), PROFILE)
    assert raised.value.reason is Reason.EVIDENCE_MISSING


def test_a_token_without_a_head_row_is_missing_evidence() -> None:
    honest = generated(Sampling())
    bad = replace(honest, output=(*honest.output[:-1], VOCABULARY))
    with pytest.raises(EvidenceError, match="without a head row"):
        token_statistics([bad], head(), PROFILE)


def test_states_of_fewer_tokens_than_anothers_never_shorten_what_is_judged() -> None:
    honest = generated(Sampling(), spoil=39)
    first, *others = honest.finals
    with pytest.raises(ValueError, match="zip"):
        token_statistics([replace(honest, finals=(first[:-1], *others))], head(), PROFILE)


def test_an_output_of_nothing_says_nothing() -> None:
    nothing = replace(generated(Sampling()), output=(), finals=(np.zeros((0, 32), np.uint16),))
    assert votes(nothing, nothing.finals[0], head(), PROFILE) == ()
    assert averaged_leads(nothing, head(), PROFILE) == ()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0), Sampling.of(0.8, 3)], ids=str)
def test_a_lead_is_that_of_the_tokens_score_over_the_best_of_its_sure_rivals(
    sampling: Sampling,
) -> None:
    honest = generated(sampling, verifiers=2, count=70)
    averaged = np.mean([to_floats(bits) for bits in honest.finals], axis=0).astype(np.float32)
    found, tau = averaged_leads(honest, head(), PROFILE), PROFILE.logit_tau / 1e6
    for at, token in enumerate(honest.output):
        logits = head().logits(averaged[at : at + 1])[0]
        ranked = scores(logits, sampling, SEED, 4 + at)
        rivals = [v for v in range(VOCABULARY) if v != token]
        if sampling.top_k:  # sure are those that fewer than k others come near
            near = {v: int(np.sum(logits >= logits[v] - np.float32(tau))) - 1 for v in rivals}
            above = np.float32(logits[token] + np.float32(tau))
            rivals = [v for v in rivals if near[v] < sampling.top_k or logits[v] >= above]
        best = max((float(ranked[v]) for v in rivals), default=-math.inf)
        expected = min(NO_RIVAL, (float(ranked[token]) - best) * 1e6)
        assert found[at] == pytest.approx(expected, abs=3)
    assert len(found) == 70


def test_a_token_without_a_rival_leads_by_the_most_and_no_lead_is_larger() -> None:
    rows = HeadArray(np.array([[3000.0], [0.0], [0.0]], np.float32))
    one = np.full((1, 1), 0x3F80, np.uint16)
    for sampling in (Sampling(0), Sampling.of(1.0, 1)):
        sure = Generated(1, (0,), sampling, SEED, (one,))
        assert averaged_leads(sure, rows, PROFILE) == (NO_RIVAL,)


def test_whoever_is_clearly_above_a_token_is_its_rival_though_none_is_surely_kept() -> None:
    rows = HeadArray(np.array([[3.0], [2.9375], [-9.0]], np.float32))
    forged = Generated(1, (2,), Sampling.of(0.1, 1), SEED, (np.full((1, 1), 0x3F80, np.uint16),))
    (lead,) = averaged_leads(forged, rows, PROFILE)
    assert lead < -5_000_000


@pytest.mark.parametrize("values", [(0x7F7F, 0x7F7F), (0x7F80, 0xFF80)], ids=["huge", "infinite"])
def test_tokens_whose_averaged_logits_are_not_finite_have_no_lead(values: tuple[int, int]) -> None:
    honest = generated(Sampling())
    one, other = honest.finals[0].copy(), honest.finals[0].copy()
    one[3], other[3] = values
    found = averaged_leads(replace(honest, finals=(one, other)), head(), PROFILE)
    assert len(found) == 39


def test_a_head_in_memory_multiplies_rows_and_states() -> None:
    rows: Floats = np.array([[1, 0], [0, 2], [1, 1]], np.float32)
    assert HeadArray(rows).vocabulary == 3
    assert HeadArray(rows).logits(np.array([[3, 4]], np.float32)).tolist() == [[3, 8, 7]]
