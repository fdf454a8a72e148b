"""Token thresholds: what honest outputs look like from the states of those who check them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from verillm.model import CheckProfile
from verillm.task import Item
from verillm.tokens import Generated, Head, TokenStatistics, judge_tokens, token_statistics
from verillm.types import PPM, Outcome
from verillm_verifier.runs import Decode

COMMITTEES = (("bf16",), ("bf16", "bf16 eager", "fp32"))
"""One kind of verifier, and three that differ; decode runs take turns."""
CHEAT_JOBS = 8
EPSILONS = (50_000, 100_000, 200_000)
"""Tolerances of the nucleus' border in mass, ppm: the first under which honest jobs pass."""
LOGIT_TAU = 400_000
LEAST_MEAN, LEAST_REFUND, LEAST_SLASH = 5_000, 250_000, 400_000
SANE_MARGIN = PPM
"""An honest margin above one logit is no noise of states: the border was too narrow."""
MARGIN = 1.7
"""Over the honest maximum: seeds held out of the calibration reached 1.4 times its maximum."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenRow:
    """Token statistics of one job, and what the profile makes of them."""

    run: str
    is_honest: bool
    statistics: TokenStatistics
    outcome: Outcome

    @property
    def largest(self) -> int:
        """Largest margin of the refund tier, ppm."""
        return max(self.statistics.margins)

    @property
    def largest_above(self) -> int:
        """Largest margin of the slash tier, ppm."""
        return max(self.statistics.margins_above)

    @property
    def mean(self) -> int:
        """Mean margin as the verdict takes it, ppm."""
        return self.statistics.mean


def token_profile(
    profile: CheckProfile, decodes: Sequence[Decode], items: Sequence[Item], head: Head
) -> tuple[CheckProfile, list[TokenRow]]:
    """Return the profile with token thresholds above every honest job's by the stated margin, and
    every job's statistics under it.
    """
    profile = replace(profile, logit_tau=LOGIT_TAU)
    honest: list[TokenRow] = []
    for epsilon in EPSILONS:
        profile = replace(profile, mass_epsilon=epsilon)
        honest = token_rows([each for each in decodes if each.is_honest], items, head, profile)
        worst = max(row.largest for row in honest)
        if worst < SANE_MARGIN and not any(row.statistics.outside for row in honest):
            break
    refund = max(LEAST_REFUND, _above(max(row.largest for row in honest)))
    profile = replace(
        profile,
        margin_mean=max(LEAST_MEAN, _above(max(row.mean for row in honest))),
        margin_max_refund=refund,
        margin_max_slash=max(refund, LEAST_SLASH, _above(max(row.largest_above for row in honest))),
    )
    cheats = token_rows([each for each in decodes if not each.is_honest], items, head, profile)
    judged = [
        replace(row, outcome=judge_tokens(row.statistics, profile)[0]) for row in (*honest, *cheats)
    ]
    return profile, judged


def token_rows(
    decodes: Sequence[Decode], items: Sequence[Item], head: Head, profile: CheckProfile
) -> list[TokenRow]:
    """Measure the tokens of every job."""
    return [
        TokenRow(
            decode.name,
            decode.is_honest,
            token_statistics([generated], head, profile),
            Outcome.NONE,
        )
        for turn, decode in enumerate(decodes)
        for generated in _generated(decode, items, COMMITTEES[turn % len(COMMITTEES)])
    ]


def _generated(
    decode: Decode, items: Sequence[Item], committee: tuple[str, ...]
) -> Iterator[Generated]:
    members = [decode.checks[name] for name in committee if name in decode.checks]
    for place, job in enumerate(decode.jobs if decode.is_honest else decode.jobs[:CHEAT_JOBS]):
        yield Generated(
            job.prompt_tokens,
            job.tokens[job.prompt_tokens :],
            items[job.number].sampling,
            items[job.number].seed,
            tuple(jobs[place].finals[job.prompt_tokens - 1 :] for jobs in members),
        )


def _above(honest: int) -> int:
    """Return the honest maximum with its margin, rounded up to thousandths."""
    return -int(-honest * MARGIN // 1_000) * 1_000
