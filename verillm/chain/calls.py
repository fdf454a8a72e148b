"""What transactions ask of a deployment's contracts, as typed calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from eth_typing import ChecksumAddress

from verillm.api import CommitmentEvent, TaskSubmission
from verillm.appeal import Content
from verillm.chain import artifacts
from verillm.chain.deployment import Deployment
from verillm.hashing import tokens_bytes
from verillm.model import ModelSpec
from verillm.proofs.find import Proof
from verillm.proofs.shown import HashedTask
from verillm.records import Attestation, Claiming, Posting, Sealing
from verillm.request import Job, Quote
from verillm.task import Inner, ItemLeaf, Task
from verillm.types import Hash32, JobId, ModelId, Outcome


@dataclass(frozen=True, slots=True)
class Call:
    """What a transaction asks for; `to` None deploys."""

    name: str
    to: ChecksumAddress | None
    data: bytes
    value: int = 0


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked request by its place in the drawn order, with the lengths that `reveal` fixed."""

    index: int
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Opening:
    """One party's evidence at one position, as `serve` and `compare` take it; states as bytes."""

    party: int
    inner: Inner
    leaf: ItemLeaf
    item_path: tuple[Hash32, ...]
    position: int
    token: int
    next: int
    slices: bytes
    final_state: bytes
    path: tuple[Hash32, ...]


class Calls:
    """Builds the calls of one deployment; amounts in token units, times in seconds."""

    __slots__ = ("_adjudicator", "_contract", "_prover", "_token")

    def __init__(self, deployment: Deployment) -> None:
        self._contract, self._token = deployment.contract, deployment.token
        self._adjudicator, self._prover = deployment.adjudicator, deployment.prover

    def _call(self, name: str, *values: object) -> Call:
        return Call(name, self._contract, artifacts.functions("VeriLLM")[name].encode(*values))

    def _round_call(self, name: str, *values: object) -> Call:
        data = artifacts.functions("Adjudicator")[name].encode(self._contract, *values)
        return Call(name, self._adjudicator, data)

    def _token_call(self, name: str, *values: object) -> Call:
        return Call(name, self._token, artifacts.functions("DevToken")[name].encode(*values))

    # Money in and out
    def approve(self, amount: int) -> Call:
        """Lets the contract take `amount` of the caller's tokens."""
        return self._token_call("approve", self._contract, amount)

    def mint(self, to: ChecksumAddress, amount: int) -> Call:
        """Devnet only: makes tokens."""
        return self._token_call("mint", to, amount)

    def transfer(self, to: ChecksumAddress, amount: int) -> Call:
        """Sends tokens."""
        return self._token_call("transfer", to, amount)

    def deposit(self, scheduler: ChecksumAddress, amount: int) -> Call:
        """Client: puts `amount` at the disposal of jobs signed for `scheduler`."""
        return self._call("deposit", scheduler, amount)

    def request_unlock(self, scheduler: ChecksumAddress, amount: int) -> Call:
        """Client: asks for a deposit back."""
        return self._call("requestUnlock", scheduler, amount)

    def withdraw_deposit(self, scheduler: ChecksumAddress) -> Call:
        """Client: takes an unlocked deposit."""
        return self._call("withdrawDeposit", scheduler)

    def add_stake(self, amount: int) -> Call:
        """Operator: adds to its stake."""
        return self._call("addStake", amount)

    def request_stake_withdrawal(self, amount: int) -> Call:
        """Operator: asks for free stake and earnings back."""
        return self._call("requestStakeWithdrawal", amount)

    def withdraw_stake(self) -> Call:
        """Operator: takes what it asked for."""
        return self._call("withdrawStake")

    def set_hot_key(self, hot_key: ChecksumAddress) -> Call:
        """Operator: names the key that signs for it."""
        return self._call("setHotKey", hot_key)

    def set_endpoint(self, endpoint: str) -> Call:
        """Operator: publishes its API's address."""
        return self._call("setEndpoint", endpoint)

    # Models and seats
    def register_model(self, spec: ModelSpec) -> Call:
        """Anyone: registers an immutable model version."""
        return self._call("registerModel", spec)

    def join(self, model_id: ModelId, price: int) -> Call:
        """Operator: takes a seat at a price per token."""
        return self._call("join", model_id, price)

    def leave(self, model_id: ModelId, seat: int) -> Call:
        """Operator: leaves a seat."""
        return self._call("leave", model_id, seat)

    def release(self, model_id: ModelId, seat: int) -> Call:
        """Operator: frees the stake of a seat left long ago."""
        return self._call("release", model_id, seat)

    def evict(self, model_id: ModelId, seat: int) -> Call:
        """Anyone: puts out a seat that its owner's balance no longer covers."""
        return self._call("evict", model_id, seat)

    # A job's life
    def post(
        self,
        job: Job,
        quote: Quote,
        seat: int,
        commitment: Hash32,
        outputs_root: Hash32,
        lock: int,
        client_signature: bytes,
        worker_signature: bytes,
    ) -> Call:
        """Scheduler: posts an inferencer's commitment to a signed job."""
        values = (job, quote, seat, commitment, outputs_root, lock)
        return self._call("post", *values, client_signature, worker_signature)

    def seal(
        self,
        posting: Posting,
        secret: Hash32,
        inner: Inner,
        inners: Sequence[Hash32],
        signatures: Sequence[bytes],
    ) -> Call:
        """Scheduler: seals the committee's commitments, in drawn order."""
        return self._call("seal", posting, secret, inner, inners, signatures)

    def claim(
        self,
        posting: Posting,
        sealing: Sealing,
        outcome: Outcome,
        reason: int,
        paid: int,
        bundle: Hash32,
        attestations: Sequence[bytes] = (),
    ) -> Call:
        """Anyone, bonded: claims a verdict; bit k - 1 of `paid` is committee member k.

        Attestations in drawn order, empty where a member gave none.
        """
        verdict = (outcome, reason, paid, bundle)
        return self._call("claim", posting, sealing, *verdict, attestations)

    def finalize(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: settles an unchallenged claim."""
        return self._call("finalize", posting, sealing, claiming)

    def refund(self, posting: Posting) -> Call:
        """Anyone: ends a job that was not sealed in time."""
        return self._call("refund", posting)

    def keep(self, block: int) -> Call:
        """Anyone: stores a block's hash, for all jobs posted or sealed in it."""
        return self._call("keep", block)

    # Somebody keeps silent
    def summon(
        self,
        posting: Posting,
        secret: Hash32,
        inner: Inner,
        index: int,
        spec: ModelSpec,
        task: Task,
        signature: bytes,
    ) -> Call:
        """Scheduler: asks the member at place `index`, from 0, on chain."""
        tokens = [tokens_bytes(item.tokens) for item in task.items]
        given = (spec, HashedTask.of(task), task.items, tokens, signature)
        return self._call("summon", posting, secret, inner, index, *given)

    def answer(self, job_id: JobId, index: int, inner: Inner, signature: bytes) -> Call:
        """Anyone: answers a summons with what its member signed."""
        return self._call("answer", job_id, index, inner, signature)

    def replace(self, posting: Posting, index: int) -> Call:
        """Anyone: puts out a summoned member that did not answer."""
        return self._call("replace", posting, index)

    def seal_summoned(
        self,
        posting: Posting,
        inner: Inner,
        inners: Sequence[Hash32],
        signatures: Sequence[bytes],
    ) -> Call:
        """Anyone: seals a summoned job; what was answered on chain stands as it was."""
        return self._call("sealSummoned", posting, inner, inners, signatures)

    def dismiss(self, posting: Posting) -> Call:
        """Anyone: ends a summoned job that was not sealed in time."""
        return self._call("dismiss", posting)

    def claim_task(
        self,
        submission: TaskSubmission,
        seat: int,
        commitment: CommitmentEvent,
        outputs: Sequence[Sequence[int]],
    ) -> Call:
        """Worker: claims the fee of a task that its scheduler did not post."""
        task = submission.task
        return self._call(
            "claimTask",
            HashedTask.of(task),
            task.items,
            submission.scheduler,
            seat,
            commitment.inner,
            commitment.leaves,
            [tokens_bytes(tokens) for tokens in outputs],
            [submission.signature, commitment.signature],
        )

    def contest_task(
        self, commitment: Hash32, posting: Posting, sealing: Sealing, claiming: Claiming
    ) -> Call:
        """Anyone: ends a claim by a job that holds its commitment, or refutes it."""
        return self._call("contestTask", commitment, posting, sealing, claiming)

    def post_claimed(self, job: Job, quote: Quote, commitment: Hash32) -> Call:
        """Scheduler: posts, at its own cost, the job of a claimed task, so that it is judged."""
        return self._call("postClaimed", job, quote, commitment)

    def collect_task(self, commitment: Hash32) -> Call:
        """Anyone: pays a claim that nobody contested."""
        return self._call("collectTask", commitment)

    # The public round
    def challenge(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        outcome: Outcome = Outcome.NONE,
        reason: int = 0,
        bundle: Hash32 = Hash32(bytes(32)),  # noqa: B008 - immutable
        attestations: Sequence[bytes] = (),
    ) -> Call:
        """Anyone, bonded: opens the public round; with a verdict that enough members attested."""
        attested = (outcome, reason, bundle, attestations)
        return self._call("challenge", posting, sealing, claiming, *attested)

    def attest(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        attestation: Attestation,
        signatures: Sequence[bytes],
    ) -> Call:
        """Anyone: adds what enough members attested to a round that was opened without it."""
        word = (attestation.outcome, attestation.reason, attestation.bundle, signatures)
        return self._call("attest", posting, sealing, claiming, *word)

    def reveal(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        checked_index: int,
        leaf: ItemLeaf,
        item_path: Sequence[Hash32],
    ) -> Call:
        """Anyone: fixes the lengths of a checked request."""
        record = (posting, sealing, claiming)
        return self._round_call("reveal", *record, checked_index, leaf, item_path)

    def serve(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        spec: ModelSpec,
        checked: Checked,
        position_index: int,
        opening: Opening,
    ) -> Call:
        """Anyone: puts one party's opening of one position into calldata."""
        record = (posting, sealing, claiming, spec)
        return self._round_call("serve", *record, checked, position_index, opening)

    def compare(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        spec: ModelSpec,
        checked: Checked,
        position_index: int,
        openings: Sequence[Opening],
    ) -> Call:
        """Anyone: compares several parties' openings of one position."""
        record = (posting, sealing, claiming, spec)
        return self._round_call("compare", *record, checked, position_index, openings)

    def adjudicate(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: computes the public round's verdict; it may be appealed for a while."""
        return self._call("adjudicate", posting, sealing, claiming)

    def settle(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: pays by a verdict that nobody appealed."""
        return self._call("settle", posting, sealing, claiming)

    # The bundle of a claim
    def demand(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone, bonded: demands the bundle of a claim in calldata."""
        return self._call("demand", posting, sealing, claiming)

    def serve_bundle(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        index: int,
        chunk: bytes,
        hashes: Sequence[Hash32],
    ) -> Call:
        """Anyone: puts one chunk of a demanded bundle into calldata."""
        return self._call("serveBundle", posting, sealing, claiming, index, chunk, hashes)

    def void_claim(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: ends a claim whose bundle was not served in time."""
        return self._call("voidClaim", posting, sealing, claiming)

    # Objective proofs
    def prove(self, posting: Posting, sealing: Sealing, claiming: Claiming, proof: Proof) -> Call:
        """Anyone: has the Prover check a proof, and the network convict or overrule by it."""
        record = (self._contract, posting, sealing, claiming)
        data = artifacts.functions("Prover")[proof.name].encode(*record, *proof.values)
        return Call(proof.name, self._prover, data)

    # Re-verification
    def reverify(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        contents: Sequence[Content],
    ) -> Call:
        """Anyone, bonded: asks for a larger committee; with the first of the contents."""
        return self._call("reverify", posting, sealing, claiming, contents)

    def supply(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        contents: Sequence[Content],
    ) -> Call:
        """Anyone: the next contents."""
        return self._call("supply", posting, sealing, claiming, contents)

    def convene(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: draws the new committee."""
        return self._call("convene", posting, sealing, claiming)

    def recommit(self, job_id: JobId, index: int, inner: Inner) -> Call:
        """New member, counted from 0: commits to its states."""
        return self._call("recommit", job_id, index, inner)

    def close_commits(self, job_id: JobId) -> Call:
        """Anyone: ends the commitments when their time is over."""
        return self._call("closeCommits", job_id)

    def start_round(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: opens the round over the new committee's commitments."""
        return self._call("startRound", posting, sealing, claiming)

    def reject_tokens(self, job_id: JobId, index: int, reason: int) -> Call:
        """New member: its own states reject the tokens."""
        return self._call("rejectTokens", job_id, index, reason)

    def conclude(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: ends the job by what the new committee opened."""
        return self._call("conclude", posting, sealing, claiming)
