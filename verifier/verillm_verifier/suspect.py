"""What all jobs of one worker say together: whose jobs to challenge, where no single one tells.

Pure: it pools audits. A job counts by the states of its clique's members, whatever its own verdict
was; one whose evidence is not at hand, or whose verifiers do not agree, says nothing. The odds
convict nobody: one lying verifier can move a job's leads, and public money needs a job's verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from verillm.api import to_hex
from verillm.errors import EvidenceError, InputError
from verillm.evidence import Evidence, PartyStates
from verillm.model import ModelSpec
from verillm.roughness import Scale, squares
from verillm.sequential import ALARM, Suspicion, Table, load
from verillm.statistics import distance, is_finite
from verillm.tokens import Head, averaged_leads
from verillm.types import Bits, ChecksumAddress, JobId, Reason
from verillm.verdict import generated
from verillm_verifier.audit import Audit, reverified

TABLES: Final = "sequential"


@dataclass(frozen=True, slots=True)
class Pooled:
    """One worker's jobs of one model, in the order in which they were posted."""

    worker: ChecksumAddress
    jobs: tuple[JobId, ...]
    suspicion: Suspicion
    left_out: Mapping[str, int]
    """Jobs that say nothing, by why."""

    @property
    def is_alarm(self) -> bool:
        """Whether these jobs should be challenged together."""
        return self.suspicion.is_alarm

    def to_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "worker": self.worker,
            "jobs": [to_hex(job) for job in self.jobs],
            "tokens": self.suspicion.tokens,
            "odds": self.suspicion.value,
            "alarm": self.is_alarm,
            "leftOut": dict(self.left_out),
        }

    def line(self) -> str:
        """For people."""
        aside = "".join(f"; {count} {why}" for why, count in self.left_out.items())
        verdict = "CHALLENGE THESE JOBS TOGETHER" if self.is_alarm else f"alarm at {ALARM:.0e}"
        return (
            f"{self.worker}  {len(self.jobs)} jobs, {self.suspicion.tokens} tokens, odds "
            f"{self.suspicion.value:.3g} against honest work ({verdict}){aside}"
        )


def pool(audits: Iterable[Audit], heads: Head, table: Table) -> tuple[Pooled, ...]:
    """Pool audited jobs, oldest first, by worker; the most suspicious worker first."""
    found: dict[ChecksumAddress, Pooled] = {}
    for each in audits:
        worker = each.facts.posting.worker
        before = found.get(worker, Pooled(worker, (), Suspicion(), {}))
        found[worker] = _after(before, each, heads, table)
    return tuple(sorted(found.values(), key=lambda pooled: -pooled.suspicion.value))


def leads(audit: Audit, head: Head, scale: Scale) -> tuple[int, ...]:
    """Every generated token's lead by the averaged logits of a largest clique, in thousandths of
    the roughness of the job's states.

    EvidenceError says why the job says nothing.
    """
    if reverified(audit.facts) is not None:
        raise EvidenceError(Reason.EVIDENCE_MISSING, "judged by members that no bundle shows")
    cliques = audit.verdict.details.cliques
    if audit.evidence is None or not cliques:
        raise EvidenceError(audit.verdict.reason, "no clique of verifiers")
    profile = audit.evidence.spec.profile
    found = (
        lead
        for request in generated(audit.evidence, cliques[0])
        for lead in averaged_leads(request, head, profile)
    )
    return scale.scaled(found, _squares(audit.evidence, cliques[0]))


def _squares(evidence: Evidence, clique: tuple[int, ...]) -> tuple[int, ...]:
    """How far the inferencer's states are from the clique's average where they chose tokens;
    nothing, if some output has none to compare.
    """
    scale, found = evidence.spec.profile.layers[-1].scale, list[int]()
    for at, checked in enumerate(evidence.checked):
        parties = [evidence.parties[k] for k in (0, *clique)]
        mine, *members = [_at(party, at, checked.generated) for party in parties]
        others = [finals for finals in members if finals is not None]
        if mine is None or not others:
            return ()
        pairs = [distance(a, b, scale) for a, b in combinations(others, 2)]
        found += squares([distance(mine, other, scale) for other in others], pairs)
    return tuple(found)


def _at(party: PartyStates, request: int, where: range) -> Bits | None:
    """A party's finite final states at the compared positions of one output."""
    if party.states is None:
        return None
    states = party.states[request]
    finals = states.finals[[position in where for position in states.positions]]
    return finals if is_finite(finals) else None


def table_of(spec: ModelSpec, named: Path | None = None) -> Table:
    """The table that was fitted on a model: a named one, or the one that ships for its weights."""
    if named is not None:
        return load(named)
    import verillm

    shipped = Path(verillm.__file__).parent / "data" / TABLES
    for path in sorted(shipped.glob("*.json")):
        table = load(path)
        if table.weights == spec.weights_root.hex():
            return table
    raise InputError(f"no table ships for {spec.name!r}: fit one by the lab, give it by --table")


def _after(before: Pooled, audit: Audit, head: Head, table: Table) -> Pooled:
    job = audit.facts.history.job_id
    try:
        found = leads(audit, head, table.roughness)
    except EvidenceError as error:
        why = Counter(before.left_out)
        why[error.reason.name.lower()] += 1
        return Pooled(before.worker, before.jobs, before.suspicion, dict(why))
    suspicion = before.suspicion.after(found, table)
    return Pooled(before.worker, (*before.jobs, job), suspicion, before.left_out)
