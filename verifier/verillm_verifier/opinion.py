"""The auditor's own run beside everyone's: one more opinion, which no committee can capture.

It decides nothing on chain. An accept that it objects to is reported as inconclusive.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from verillm.evidence import INFERENCER, Evidence, PartyStates
from verillm.model import CheckProfile
from verillm.statistics import PairStatistics, compare
from verillm.tokens import Generated, Head, TokenStatistics, judge_tokens, token_statistics
from verillm.types import Outcome
from verillm.verdict import PartyStatus, party_status


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one's own prefill says: distances to every open party, and the tokens by own states.

    `agrees`: the parties within the refund tier; `tokens` None without head rows.
    """

    pairs: Mapping[int, PairStatistics]
    agrees: tuple[int, ...]
    tokens: TokenStatistics | None
    tokens_hold: bool

    @property
    def objects(self) -> bool:
        """Whether it speaks against the inferencer."""
        return INFERENCER not in self.agrees or not self.tokens_hold


def form(evidence: Evidence, own: PartyStates, head: Head | None) -> Opinion:
    """Compare one's own states with every party's.

    One's own margins are noisier than a clique's average, so only the slash tier speaks.
    """
    profile = evidence.spec.profile
    pairs = _pairs(evidence, own, profile)
    positions = sum(len(states.positions) for states in own.states or ())
    tier = profile.refund_tier(positions, len(evidence.checked))
    agrees = tuple(k for k, statistics in pairs.items() if statistics.agrees(*tier))
    tokens = None if head is None else token_statistics(_generated(evidence, own), head, profile)
    holds = tokens is None or judge_tokens(tokens, profile)[0] is not Outcome.SLASH
    return Opinion(pairs, agrees, tokens, holds)


def _pairs(
    evidence: Evidence, own: PartyStates, profile: CheckProfile
) -> dict[int, PairStatistics]:
    prompts = [each.prompt_tokens for each in evidence.checked]
    return {
        k: compare(own.states, party.states, profile, prompts)
        for k, party in enumerate(evidence.parties)
        if own.states is not None
        and party.states is not None
        and party_status(party) is PartyStatus.OPEN
    }


def _generated(evidence: Evidence, own: PartyStates) -> list[Generated]:
    return [
        Generated(each.prompt_tokens, each.output, each.request.sampling, each.seed, (states,))
        for each, states in zip(evidence.checked, own.generated, strict=True)
        if states is not None
    ]
