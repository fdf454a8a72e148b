"""A claim stands on a bundle that anyone can have, or it is void: `Demands` of the contracts."""

from collections.abc import Sequence
from dataclasses import replace

from tests.reference.disputes import Disputes
from tests.reference.state import Demand, require
from verillm.chain import events
from verillm.chain.reads import Status
from verillm.codec import CHUNK
from verillm.hashing import keccak
from verillm.records import Claiming, Posting, Sealing, record_hash
from verillm.types import Hash32

MAX_DEMANDS, MAX_CHUNKS = 3, 256


class Demands(Disputes):
    """The bundle of a claim, in calldata."""

    def demand(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Demand a claim's bundle, bonded: once a claim, three times a job."""
        identity = self._at(Status.CLAIMED, posting, sealing, claiming)
        self._require_before(identity)
        asked = self.state.demands.get(identity, Demand())
        require(not asked.answered, "AlreadyServed")
        require(asked.count < MAX_DEMANDS, "TooManyDemands")
        demander = self.operator_of(self.sender)
        self._lock(demander, self.config.challenge_bond)
        asked = replace(asked, demander=demander, count=asked.count + 1)
        self.state.demands[identity] = asked
        record = self.job_state(identity).record
        self._enter(identity, Status.DEMANDED, self.config.opening_window, record)
        open_by = self.job_state(identity).deadline
        self.events.append(events.BundleDemanded(identity, demander, open_by))

    def serve_bundle(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        index: int,
        chunk: bytes,
        hashes: Sequence[Hash32],
    ) -> None:
        """Serve one chunk; the last one brings the claim back, and the demander's bond with it."""
        identity = self._at(Status.DEMANDED, posting, sealing, claiming)
        self._require_before(identity)
        require(index < len(hashes) <= MAX_CHUNKS, "ChunkInvalid")
        last = index + 1 == len(hashes)
        require(0 < len(chunk) <= CHUNK if last else len(chunk) == CHUNK, "ChunkInvalid")
        require(keccak(b"".join(hashes)) == claiming.bundle, "ChunkInvalid")
        require(keccak(chunk) == hashes[index], "ChunkInvalid")
        asked = self.state.demands[identity]
        asked = replace(asked, served=asked.served | {index})
        self.events.append(events.ChunkServed(identity, index, len(hashes)))
        if len(asked.served) == len(hashes):
            asked = replace(asked, answered=True)
            record = self.job_state(identity).record
            self._enter(identity, Status.CLAIMED, self.config.dispute_window, record)
            after = self.job_state(identity).deadline
            self.events.append(events.BundleServed(identity, after))
            bond = self.config.challenge_bond
            self._unlock(asked.demander, bond)
            self._credit(identity, asked.demander, -bond)
            self._credit(identity, claiming.claimer, bond)
        self.state.demands[identity] = asked

    def void_claim(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """End a claim whose bundle was not served: its bond to who asked, the job to who claims."""
        identity = self._at(Status.DEMANDED, posting, sealing, claiming)
        self._require_after(identity)
        asked = self.state.demands[identity]
        self.state.demands[identity] = replace(asked, served=frozenset())
        self.state.kept[sealing.sealed_block] = claiming.beacon
        sealed = record_hash(posting, sealing)
        self._enter(identity, Status.SEALED, self.config.claim_window, sealed)
        claim_by = self.job_state(identity).deadline
        self.events.append(events.ClaimVoided(identity, claiming.claimer, claim_by))
        self._return_bonds(identity, Status.DEMANDED, claiming)
        self._credit(identity, claiming.claimer, -self.config.claim_bond)
        self._credit(identity, asked.demander, self.config.claim_bond)
