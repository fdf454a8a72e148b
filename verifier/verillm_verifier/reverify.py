"""`verillm-audit reverify`: put a claim or a verdict before a larger committee, bonded.

What the chain would refuse is told before anything is sent. Where somebody asked and has not
supplied all contents, the rest is supplied: without them the requester's bond burns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from verillm.api import to_hex
from verillm.appeal import Content, content, holds, inferencer_task, out_of_bounds, size_of
from verillm.chain.appeals import AppealPhase, ContentSupplied, Record, ReverificationAsked, split
from verillm.chain.calls import Call
from verillm.chain.contract import Chain, Status
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.codec import decode_bundle
from verillm.errors import TransactionFailed
from verillm.types import ChecksumAddress, Hash32, JobId
from verillm_verifier.errors import (
    AlreadyReverified,
    BondNotCovered,
    ContentsMissing,
    ContentsOutOfBounds,
    NotDisputable,
    RoundForced,
    TooFewOwners,
    WindowOver,
)
from verillm_verifier.facts import Facts, check, round_claim

MOST_BYTES = 100_000
"""Tokens in one call, as bytes: what common nodes take beside the rest of a transaction."""


@dataclass(frozen=True, slots=True)
class Question:
    """What asking takes: the calls in order, the bond (0 where only contents are missing)."""

    job_id: JobId
    status: Status
    calls: tuple[Call, ...]
    requests: int
    bond: int
    until: int
    """Chain seconds, before which the first call must be mined."""

    def lines(self, sent: tuple[Hash32, ...], symbol: str, decimals: int) -> Iterator[str]:
        """For people."""
        stands = self.status.name.lower()
        yield f"job {to_hex(self.job_id)}, {stands}: {self.requests} requests to supply"
        bond = f"{Decimal(self.bond).scaleb(-decimals).normalize():f} {symbol}"
        yield f"bond: {bond}; back if what stands is overturned, lost if it stands"
        yield f"until: {datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M:%S} UTC"
        for call, transaction in zip(self.calls, sent, strict=False):
            yield f"{call.name}: sent in {to_hex(transaction)}"
        if not sent:
            yield f"nothing is sent: --send sends {', '.join(call.name for call in self.calls)}"

    def to_json(self, sent: tuple[Hash32, ...]) -> dict[str, object]:
        """For machines."""
        return {
            "job": to_hex(self.job_id),
            "status": self.status.name.lower(),
            "requests": self.requests,
            "bond": str(self.bond),
            "until": self.until,
            "calls": [call.name for call in self.calls],
            "transactions": [to_hex(each) for each in sent],
        }


def put(chain: Chain, facts: Facts, raw: bytes, most_bytes: int = MOST_BYTES) -> Question:
    """The question that the bundle's contents ask; whatever forbids it is raised."""
    check_open(chain, facts)
    shown = contents_of_bundle(facts, raw)
    sealing = facts.sealing
    if sealing is None:
        raise NotDisputable("a job that is not sealed was not judged")
    supplied = len(facts.history.all(ContentSupplied))
    record = (facts.posting, sealing, round_claim(facts))
    resumed = facts.state.status is Status.REVERIFYING
    question = Question(
        job_id=facts.history.job_id,
        status=facts.state.status,
        calls=_calls(chain, record, shown[supplied:], resumed, most_bytes),
        requests=len(shown) - supplied,
        bond=0 if resumed else facts.config.reverify_bond,
        until=facts.state.deadline,
    )
    _try(chain, question)
    return question


def ask(chain: Chain, question: Question) -> tuple[Hash32, ...]:
    """Send all of it; what breaks off half way is taken up by asking again."""
    return tuple(chain.send(call).transaction for call in question.calls)


# ── Whether it can be asked ──────────────────────────────────────────────────────────────────────
def check_open(chain: Chain, facts: Facts) -> None:
    """Raise what forbids a re-verification of this job now, whoever asks for it."""
    state, job = facts.state, facts.history.job_id
    resumed = state.status is Status.REVERIFYING
    asked = facts.history.first(ReverificationAsked) is not None
    if asked and not (resumed and chain.appeal_of(job).phase is AppealPhase.ASKED):
        raise AlreadyReverified("a re-verification of this job was asked for, with all contents")
    if state.status is Status.FINAL:
        raise WindowOver("the job is final")
    if state.status not in (Status.CLAIMED, Status.JUDGED, Status.REVERIFYING):
        raise NotDisputable(f"the job is {state.status.name.lower()}")
    if (now := chain.now()) >= state.deadline:
        raise WindowOver(f"the window ended at {state.deadline}, the chain's time is {now}")
    if not resumed:
        _check_owners(chain, facts)


def _check_owners(chain: Chain, facts: Facts) -> None:
    _, owners = chain.slots_of(facts.posting.quote.model_id)
    needed = size_of(facts.spec.committee) + 1
    if owners < needed:
        raise TooFewOwners(f"{owners} owners hold seats of this model, {needed} are needed")


def _try(chain: Chain, question: Question) -> None:
    """Have the chain itself answer the first call, bond and all; nobody's key has no bond."""
    account = chain.account
    if account is not None and question.bond:
        check_bond(chain, account.address, question.bond)
    sender = ZERO_ADDRESS if account is None else account.address
    try:
        chain.simulate(question.calls[0], sender)
    except TransactionFailed as error:
        if error.error == "RoundForced":
            raise RoundForced("the draw demands a public round of this job") from error
        if account is not None or error.error != "StakeInsufficient":
            raise


def check_bond(chain: Chain, sender: ChecksumAddress, bond: int) -> None:
    """Raise BondNotCovered where the free stake of the sender's operator is below the bond."""
    operator = chain.operator_of(sender) or sender
    account = chain.account_of(operator)
    asked_back = account.withdrawing if account.available_at else 0
    free = max(0, account.balance - account.locked - asked_back)
    if free < bond:
        raise BondNotCovered(f"{operator} has {free} of free stake, the bond is {bond}")


# ── The contents ─────────────────────────────────────────────────────────────────────────────────
def contents_of_bundle(facts: Facts, raw: bytes) -> tuple[Content, ...]:
    """The checked requests in drawn order; ContentsMissing where the bundle does not hold one,
    ContentsOutOfBounds where no worker can run one.

    Held against the job's roots, as the contract will: any copy with the right texts does.
    """
    draws, sealing, posting = check(facts), facts.sealing, facts.posting
    if draws is None or sealing is None:
        raise NotDisputable("a job that is not sealed was not judged")
    held = {each.index: each for each in decode_bundle(raw).checked}
    task = inferencer_task(sealing.secret, facts.history.job_id)
    roots = (posting.job.requests_root, posting.outputs_root)
    found = []
    for number in draws.checked:
        if (each := held.get(number)) is None:
            raise ContentsMissing(f"the bundle does not hold request {number}")
        shown = content(each.request, each.path, each.output, each.output_path)
        if not shown.tokens or not shown.output:
            raise ContentsMissing(f"the bundle's request {number} has no text")
        if not holds(shown, *roots, task, number, posting.job.requests):
            raise ContentsMissing(f"the bundle's request {number} is not the job's")
        if (bound := out_of_bounds(shown, facts.spec)) is not None:
            raise ContentsOutOfBounds(number, bound)
        found.append(shown)
    return tuple(found)


def _calls(
    chain: Chain, record: Record, shown: tuple[Content, ...], resumed: bool, most_bytes: int
) -> tuple[Call, ...]:
    first, *rest = split(shown, most_bytes)
    opening = chain.calls.supply if resumed else chain.calls.reverify
    return (opening(*record, first), *(chain.calls.supply(*record, part) for part in rest))
