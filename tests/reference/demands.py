"""The bundle of a claim on chain, or the claim is void: `Demands`."""

from collections.abc import Sequence
from dataclasses import replace

from tests.reference.disputes import Disputes
from tests.reference.state import NO_DEMAND, require
from verillm.chain import events
from verillm.chain.reads import Status
from verillm.codec import CHUNK
from verillm.hashing import keccak
from verillm.records import Claiming, Posting, Sealing, record_hash
from verillm.types import Hash32

MAX_DEMANDS = 3
MAX_CHUNKS = 256


class Demands(Disputes):
    """Who asks for a bundle on chain gets it, or the claim's bond."""

    def demand(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Demand the bundle, bonded; the claim's window stands still."""
        identity = self._at(Status.CLAIMED, posting, sealing, claiming)
        self._require_before(identity)
        asked = self.state.demands.get(identity, NO_DEMAND)
        require(not asked.answered, "AlreadyServed")
        require(asked.count < MAX_DEMANDS, "TooManyDemands")
        demander = self.operator_of(self.sender)
        self._lock(demander, self.config.challenge_bond)
        self.state.demands[identity] = replace(asked, demander=demander, count=asked.count + 1)
        record = record_hash(posting, sealing, claiming)
        self._enter(identity, Status.DEMANDED, self.config.opening_window, record)
        until = self.job_state(identity).deadline
        self.events.append(events.BundleDemanded(identity, demander, until))

    def serve_bundle(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        index: int,
        chunk: bytes,
        hashes: Sequence[Hash32],
    ) -> None:
        """Put one chunk on chain; with the last one the claim stands for another window."""
        identity = self._at(Status.DEMANDED, posting, sealing, claiming)
        self._require_before(identity)
        require(index < len(hashes) <= MAX_CHUNKS, "ChunkInvalid")
        last = index + 1 == len(hashes)
        sized = 0 < len(chunk) <= CHUNK if last else len(chunk) == CHUNK
        told = keccak(b"".join(hashes)) == claiming.bundle and keccak(chunk) == hashes[index]
        require(sized and told, "ChunkInvalid")
        asked = self.state.demands[identity]
        served = asked.served | {index}
        self.state.demands[identity] = replace(asked, served=served)
        self.events.append(events.ChunkServed(identity, index, len(hashes)))
        if len(served) < len(hashes):
            return
        self.state.demands[identity] = replace(asked, served=served, answered=True)
        record = record_hash(posting, sealing, claiming)
        self._enter(identity, Status.CLAIMED, self.config.dispute_window, record)
        until = self.job_state(identity).deadline
        self.events.append(events.BundleServed(identity, until))
        bond = self.config.challenge_bond
        self._unlock(asked.demander, bond)
        self._credit(identity, asked.demander, -bond)
        self._credit(identity, claiming.claimer, bond)

    def void_claim(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """End a claim whose bundle was not served; anyone may claim anew."""
        identity = self._at(Status.DEMANDED, posting, sealing, claiming)
        self._require_after(identity)
        asked = self.state.demands[identity]
        self.state.demands[identity] = replace(asked, served=frozenset())
        self.state.kept[sealing.sealed_block] = claiming.beacon
        record = record_hash(posting, sealing)
        self._enter(identity, Status.SEALED, self.config.claim_window, record)
        until = self.job_state(identity).deadline
        self.events.append(events.ClaimVoided(identity, claiming.claimer, until))
        bond = self.config.claim_bond
        self._unlock(claiming.claimer, bond)
        self._unlock(asked.demander, self.config.challenge_bond)
        self._credit(identity, claiming.claimer, -bond)
        self._credit(identity, asked.demander, bond)
