"""From a bundle's bytes to a verdict: the same call for scheduler, committee and watcher."""

from dataclasses import dataclass

from verillm.codec import decode_bundle
from verillm.errors import EvidenceError, MalformedError
from verillm.model import ModelSpec
from verillm.records import Posting, Sealing
from verillm.signing import Domain
from verillm.tokens import Head
from verillm.types import Hash32, Reason
from verillm.verdict import Verdict, judge_bundle, refused


@dataclass(frozen=True, slots=True)
class Case:
    """All that the chain says of a sealed job; `beacon` is the hash of seal's block."""

    posting: Posting
    sealing: Sealing
    spec: ModelSpec
    domain: Domain
    beacon: Hash32


def verdict_of(data: bytes, case: Case, head: Head | None) -> Verdict:
    """The verdict of a bundle; evidence that does not hold together has one too.

    Without head rows the tokens cannot be judged, and the verdict says so.
    """
    try:
        bundle = decode_bundle(data)
    except MalformedError as error:
        return refused(EvidenceError(Reason.EVIDENCE_MISSING, str(error)))
    return judge_bundle(
        bundle, case.posting, case.sealing, case.spec, case.domain, case.beacon, head
    )
