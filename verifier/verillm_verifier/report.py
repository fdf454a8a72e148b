"""An audit as JSON for machines and as lines for people; nothing is computed here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from verillm.api import to_hex
from verillm.chain.contract import Status
from verillm.statistics import PairStatistics
from verillm.tokens import TokenStatistics
from verillm.types import PPM, Outcome, Reason
from verillm_verifier.audit import Audit, Standing, misnames_paid
from verillm_verifier.money import Moved
from verillm_verifier.opinion import Opinion
from verillm_verifier.steps import Step

STANDINGS: Mapping[Standing, str] = {
    Standing.AGREES: "the chain agrees",
    Standing.CONTRADICTS: "THE CHAIN SETTLED AGAINST THE EVIDENCE",
    Standing.UNCONFIRMED: "what the chain says can neither be confirmed nor refuted",
    Standing.PROCEDURAL: "the chain ended it without a verdict: a deadline passed",
    Standing.OPEN: "the chain has no verdict yet",
}


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """An audit with everything around it that is shown."""

    audit: Audit
    steps: tuple[Step, ...]
    moved: Moved
    notes: tuple[str, ...]
    symbol: str
    decimals: int


def clean(text: str) -> str:
    """Text of strangers without what could steer a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)[:500]


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────
def to_json(report: Report) -> dict[str, object]:
    """Everything, by stable names; amounts are decimal strings in token units."""
    audit = report.audit
    facts, verdict = audit.facts, audit.verdict
    return {
        "job": to_hex(facts.history.job_id),
        "chainId": facts.domain.chain_id,
        "contract": facts.domain.contract,
        "model": {"id": to_hex(facts.posting.quote.model_id), "name": clean(facts.spec.name)},
        "status": facts.state.status.name.lower(),
        "settled": None if audit.settled is None else _outcome(*audit.settled),
        "verdict": {
            **_outcome(verdict.outcome, verdict.reason),
            "fact": clean(verdict.details.fact),
            "suspects": list(verdict.suspects),
        },
        "standing": audit.standing.value,
        "exit": int(audit.exit),
        "draws": _draws(audit),
        "statistics": _statistics(audit),
        "opinion": None if audit.opinion is None else _opinion(audit.opinion),
        "moved": {
            "accounts": {account: str(net) for account, net in report.moved.accounts.items()},
            "burnt": str(report.moved.burnt),
        },
        "steps": [step.to_json() for step in report.steps],
        "notes": [clean(note) for note in report.notes],
    }


def _outcome(outcome: Outcome, reason: Reason) -> dict[str, object]:
    return {"outcome": outcome.name.lower(), "reason": reason.name.lower(), "code": int(reason)}


def _draws(audit: Audit) -> dict[str, object] | None:
    draws = audit.draws
    if draws is None:
        return None
    positions = [] if audit.evidence is None else audit.evidence.checked
    members = zip(draws.seats, draws.owners, strict=True)
    return {
        "draw": to_hex(draws.draw),
        "committee": [{"seat": seat, "owner": owner} for seat, owner in members],
        "checked": list(draws.checked),
        "positions": {str(each.index): list(each.positions) for each in positions},
    }


def _statistics(audit: Audit) -> dict[str, object]:
    details = audit.verdict.details
    return {
        "parties": [status.value for status in details.statuses],
        "pairs": [{"parties": list(pair), **_pair(found)} for pair, found in details.pairs.items()],
        "cliques": [list(clique) for clique in details.cliques],
        "tokens": None if details.tokens is None else _tokens(details.tokens),
        "paper": [
            {
                "parties": list(pair),
                "pE": found.p_e,
                "pM": found.p_m,
                "pW": found.p_w,
                "relativeL2": found.relative_l2,
                "mismatches": found.mismatches,
            }
            for pair, found in details.paper.items()
        ],
    }


def _pair(found: PairStatistics) -> dict[str, object]:
    mean = found.mean if found.cells else None
    return {"mean": mean, "over": found.over, "cells": found.cells}


def _tokens(found: TokenStatistics) -> dict[str, object]:
    return {
        "count": len(found.margins),
        "mean": found.mean if found.margins else None,
        "max": max(found.margins, default=None),
        "maxAbove": max(found.margins_above, default=None),
        "outside": list(found.outside),
    }


def _opinion(opinion: Opinion) -> dict[str, object]:
    return {
        "agrees": list(opinion.agrees),
        "objects": opinion.objects,
        "pairs": [{"party": k, **_pair(found)} for k, found in opinion.pairs.items()],
        "tokens": None if opinion.tokens is None else _tokens(opinion.tokens),
    }


# ── Lines ────────────────────────────────────────────────────────────────────────────────────────
def story(report: Report) -> Iterator[str]:
    """Every step of a job, what the draws decided, what moved."""
    yield from heading(report)
    for step in report.steps:
        yield ""
        yield f"{step.name.lower():<16}{when(step.time)}  block {step.block}"
        yield f"  transaction {to_hex(step.transaction)}"
        if step.sender is not None:
            yield f"  sent by {step.sender}"
        yield from (f"  {name}: {_fact(report, name, text)}" for name, text in step.facts.items())
    yield ""
    yield from drawn(report)
    yield from measured(report)
    yield from balance(report)
    yield from verdict_lines(report)


def verification(report: Report) -> Iterator[str]:
    """What was recomputed, and what came out."""
    yield from heading(report)
    yield from drawn(report)
    yield from measured(report)
    yield from verdict_lines(report)


def heading(report: Report) -> Iterator[str]:
    """Which job, of which model, where it stands."""
    facts = report.audit.facts
    yield f"job {to_hex(facts.history.job_id)}"
    yield f"model {clean(facts.spec.name)} {to_hex(facts.posting.quote.model_id)}"
    yield f"status {facts.state.status.name.lower()}"


def drawn(report: Report) -> Iterator[str]:
    """The draws, recomputed from secret and block hashes."""
    audit = report.audit
    if audit.draws is None:
        return
    for k, (seat, owner) in enumerate(zip(audit.draws.seats, audit.draws.owners, strict=True), 1):
        yield f"redrawn verifier {k}: {owner}, seat {seat}"
    yield f"redrawn requests to check: {', '.join(map(str, audit.draws.checked))}"
    for each in () if audit.evidence is None else audit.evidence.checked:
        positions = ", ".join(map(str, sorted(each.positions)))
        tokens = f"{each.prompt_tokens} + {each.new_tokens} tokens"
        yield f"redrawn positions of request {each.index} ({tokens}): {positions}"


def measured(report: Report) -> Iterator[str]:
    """Distances and margins; means in honest medians."""
    audit = report.audit
    details, profile = audit.verdict.details, audit.facts.spec.profile
    if audit.facts.sums is not None:
        told = audit.facts.sums.round
        served = ", ".join(map(str, told.served[: audit.facts.spec.committee + 1]))
        yield f"public round: {told.positions} positions; opened by each party: {served}"
    for k, status in enumerate(details.statuses):
        if status.value != "open":
            yield f"{party(k)}: {status.value}"
    for (a, b), found in details.pairs.items():
        yield f"{party(a)} and {party(b)}: {_distance(found)}"
    if details.pairs:
        positions = max(found.cells for found in details.pairs.values()) // len(profile.layers)
        requests = min(audit.facts.posting.job.requests, audit.facts.spec.checked_requests)
        refund_mean, refund_over = profile.refund_tier(positions, requests)
        slash_mean, slash_over = profile.slash_tier(positions, requests)
        refund = f"{refund_mean / PPM:.3f} and {refund_over} positions"
        slash = f"{slash_mean / PPM:.3f} and {slash_over}"
        yield f"they agree up to a mean of {refund}; beyond {slash} it is a slash"
    if details.tokens is not None:
        yield f"tokens: {_margins(details.tokens)}"
    if audit.opinion is not None:
        yield from _own(audit.opinion)


def balance(report: Report) -> Iterator[str]:
    """Stakes and deposits that moved."""
    for account, net in report.moved.accounts.items():
        yield f"moved {amount(report, net):>24}  {account}"
    if report.moved.burnt:
        yield f"burnt {amount(report, report.moved.burnt):>24}"


def verdict_lines(report: Report) -> Iterator[str]:
    """The verdict, how the chain's stands to it, and what could not be checked."""
    audit, verdict = report.audit, report.audit.verdict
    reason = "" if verdict.reason is Reason.NONE else f", because {verdict.reason.name.lower()}"
    fact = f" ({clean(verdict.details.fact)})" if verdict.details.fact else ""
    yield f"recomputed verdict: {verdict.outcome.name.lower()}{reason}{fact}"
    for k in verdict.suspects:
        yield f"suspect: {party(k)} agrees with no majority"
    if audit.settled is not None:
        outcome, why = audit.settled
        word = "settled" if audit.facts.state.status is Status.FINAL else "claimed"
        yield f"{word} on chain: {outcome.name.lower()}, {why.name.lower()}"
    if misnames_paid(audit.facts, audit.evidence, verdict):
        yield "the claim does not pay the members that its evidence names"
    yield STANDINGS[audit.standing]
    yield from (f"note: {clean(note)}" for note in report.notes)


def party(k: int) -> str:
    """A party by its number."""
    return "inferencer" if k == 0 else f"verifier {k}"


def when(seconds: int) -> str:
    """A chain's time, for people."""
    if not 0 <= seconds < 253_402_300_800:
        return f"time {seconds}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def amount(report: Report, units: int) -> str:
    """Token units as tokens."""
    digits = f"{Decimal(units).scaleb(-report.decimals):+f}"
    plain = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{plain} {clean(report.symbol)}"


_AMOUNTS = ("amount", "fee", "at most", "price a token", "locked on the worker", "scheduler's bond")


def _fact(report: Report, name: str, text: str) -> str:
    return amount(report, int(text)).removeprefix("+") if name in _AMOUNTS else clean(text)


def _distance(found: PairStatistics) -> str:
    if not found.cells:
        return "nothing compared"
    return f"mean {found.mean / PPM:.3f} of the honest median, {found.over} positions over the cap"


def _margins(found: TokenStatistics) -> str:
    if not found.margins:
        return "none"
    most, above = max(found.margins), max(found.margins_above)
    return (
        f"{len(found.margins)}, margin mean {found.mean / PPM:.4f}, largest {most / PPM:.3f} "
        f"({above / PPM:.3f} beyond doubt), outside the nucleus {len(found.outside)}"
    )


def _own(opinion: Opinion) -> Iterator[str]:
    for k, found in opinion.pairs.items():
        yield f"own run and {party(k)}: {_distance(found)}"
    if opinion.tokens is not None:
        yield f"tokens by the own run: {_margins(opinion.tokens)}"
    yield "own run: " + ("OBJECTS to the inferencer" if opinion.objects else "agrees")


def row(values: Mapping[str, Any]) -> str:
    """One line of a list of jobs."""
    return (
        f"{values['job'][:18]}  {values['status']:<10} {values['outcome']:<13}"
        f" {values['reason']:<24} {values['fee']:>26}  {values['client']}  {values['scheduler']}"
        f"  {values['worker']}"
    )
