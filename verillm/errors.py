"""Every expected error, as one tree; each has a code for machines and a remedy for people.

::

    VeriLLMError
    ├── InputError (bad_input)           what a caller handed in
    │   ├── MalformedError (malformed)       bytes or fields that do not parse
    │   ├── SamplingError (bad_sampling)
    │   ├── PromptTooLong (prompt_too_long)
    │   ├── TokensOutOfBounds (tokens_out_of_bounds)
    │   ├── FeeTooLow (fee_too_low)
    │   ├── DepositTooSmall (deposit_too_small)
    │   ├── QuoteExpiredError (quote_expired)
    │   └── DeadlinePassedError (deadline_passed)
    ├── SignatureError (bad_signature)
    │   └── ReplayError (replay)
    ├── ModelError (model_error)
    │   ├── UnknownModel (unknown_model)
    │   ├── ModelMismatch (model_mismatch)
    │   ├── EngineUnavailable (engine_unavailable)
    │   │   ├── EngineMissing (engine_missing)
    │   │   ├── EngineVersion (engine_version)
    │   │   ├── AttentionUnsupported (attention_unsupported)
    │   │   ├── ParallelUnsupported (parallel_unsupported)
    │   │   ├── DeviceLost (device_lost)
    │   │   ├── ModelNotTraceable (model_not_traceable)
    │   │   └── EngineOutOfMemory (out_of_memory)
    │   └── NonFiniteLogits (non_finite_logits)
    ├── EvidenceError (bad_evidence)     carries the Reason of the verdict that it leads to
    ├── DrawExhausted (draw_exhausted)
    ├── ChainError (chain_error)
    │   ├── ChainUnreachable (chain_unreachable)
    │   ├── TransactionFailed (transaction_failed)
    │   ├── WrongChain (wrong_chain)
    │   └── BeaconLost (beacon_lost)
    ├── ConfigError (bad_config)
    │   ├── WrongPassword (wrong_password)
    │   ├── PortInUse (port_in_use)
    │   └── MissingTool (missing_tool)
    └── NodeError (node_error)
        ├── NoWorkers (no_workers)
        ├── WorkerFailed (worker_failed)
        ├── RemoteError (remote_error)       carries the far side's code and remedy
        ├── NotFound (not_found)
        └── Timeout (timeout)
"""

from typing import Any, ClassVar

from verillm.types import Reason


class VeriLLMError(Exception):
    """The root: a message, the values it speaks of, a code and a remedy."""

    code: ClassVar[str] = "error"
    remedy: ClassVar[str] = "Report this, with the log around it."

    def __init__(self, message: str, **values: Any) -> None:
        super().__init__(message)
        self.message = message
        self.values = values

    def to_dict(self) -> dict[str, str]:
        """The body of an HTTP error."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


class InputError(VeriLLMError):
    """What a caller handed in breaks a rule."""

    code = "bad_input"
    remedy = "Correct the named value and try again."


class MalformedError(InputError):
    """Bytes or fields that do not parse; `field` is the path of the first one that is wrong."""

    code = "malformed"
    remedy = "Encode the named field as docs/protocol.md says."

    def __init__(self, field: str, fact: str) -> None:
        super().__init__(f"{field}: {fact}", field=field)
        self.field = field
        self.fact = fact


class SamplingError(InputError):
    """A sampling parameter that is not finite or out of range."""

    code = "bad_sampling"
    remedy = "temperature 0 to 2, top_p over 0 to 1, min_p 0 to 1, top_k 0 (off) or more."

    def __init__(self, parameter: str, value: float | int) -> None:
        super().__init__(f"{parameter} = {value!r} is out of range", parameter=parameter)
        self.parameter = parameter
        self.value = value


class PromptTooLong(InputError):
    """Prompt and new tokens do not fit the model's context."""

    code = "prompt_too_long"
    remedy = "Shorten the prompt or ask for fewer new tokens."

    def __init__(self, length: int, max_new_tokens: int, context: int) -> None:
        super().__init__(
            f"{length} prompt tokens and {max_new_tokens} new ones exceed the context of {context}",
            length=length,
            max_new_tokens=max_new_tokens,
            context=context,
        )
        self.length = length
        self.max_new_tokens = max_new_tokens
        self.context = context


class TokensOutOfBounds(InputError):
    """A token id that the vocabulary does not have, or a count that is not allowed."""

    code = "tokens_out_of_bounds"
    remedy = "Tokenise with the tokenizer of the model named in the quote."


class FeeTooLow(InputError):
    """The client's maximal fee does not cover what the job can cost."""

    code = "fee_too_low"
    remedy = "Raise max_fee, or ask for fewer tokens."

    def __init__(self, max_fee: int, required: int) -> None:
        super().__init__(f"max_fee {max_fee} is below {required}", max_fee=max_fee)
        self.max_fee = max_fee
        self.required = required


class DepositTooSmall(InputError):
    """The client's deposit with this scheduler does not cover the job."""

    code = "deposit_too_small"
    remedy = "Deposit more for this scheduler, or wait until running jobs are final."

    def __init__(self, available: int, required: int) -> None:
        super().__init__(f"deposit {available} is below {required}", available=available)
        self.available = available
        self.required = required


class QuoteExpiredError(InputError):
    """The quote's expiry has passed."""

    code = "quote_expired"
    remedy = "Ask for a new quote."

    def __init__(self, expiry: int) -> None:
        super().__init__(f"the quote expired at {expiry}", expiry=expiry)
        self.expiry = expiry


class DeadlinePassedError(InputError):
    """A deadline has passed, or leaves no time."""

    code = "deadline_passed"
    remedy = "Sign again with a later deadline; check this machine's clock."

    def __init__(self, deadline: int) -> None:
        super().__init__(f"the deadline {deadline} has passed", deadline=deadline)
        self.deadline = deadline


class SignatureError(VeriLLMError):
    """A signature that is malformed or by someone else."""

    code = "bad_signature"
    remedy = "Sign with the key that the chain names, over this chain id and contract."


class ReplayError(SignatureError):
    """A signed object that was used before."""

    code = "replay"
    remedy = "Use a fresh nonce."


class ModelError(VeriLLMError):
    """Something about a model."""

    code = "model_error"
    remedy = "Check the model folder with `verillm-node doctor`."


class UnknownModel(ModelError):
    """No such model here."""

    code = "unknown_model"
    remedy = "Ask for a model that GET /v1/models lists."

    def __init__(self, model: str) -> None:
        super().__init__(f"unknown model {model}", model=model)
        self.model = model


class ModelMismatch(ModelError):
    """The model at hand is not the one that its id names."""

    code = "model_mismatch"
    remedy = "Fetch the exact version: the id is a hash of weights, tokenizer and profile."


class EngineUnavailable(ModelError):
    """No engine can run this model here."""

    code = "engine_unavailable"
    remedy = "Install the extra `verillm[engine]`."


class EngineMissing(EngineUnavailable):
    """The packages of an engine are not installed in this environment."""

    code = "engine_missing"
    remedy = (
        "Install the engine's extra here: for vLLM `make vllm`, or `pip install verillm[vllm]`."
    )


class EngineVersion(EngineUnavailable):
    """The engine's version is outside the range that its captures were tested with."""

    code = "engine_version"
    remedy = "Install a version of the named range."

    def __init__(self, package: str, found: str, tested: str) -> None:
        super().__init__(f"{package} {found} is not in the tested range {tested}", found=found)
        self.package = package
        self.found = found
        self.tested = tested


class AttentionUnsupported(EngineUnavailable):
    """The attention backend is not one that honest workers were calibrated with."""

    code = "attention_unsupported"
    remedy = "Leave engine.attention empty, or name a supported backend."


class ParallelUnsupported(EngineUnavailable):
    """The model cannot be split over so many devices, or they are not there."""

    code = "parallel_unsupported"
    remedy = "Set engine.devices to a divisor of the model's heads, and with engine.stages to no \
more than this machine has."


class DeviceLost(EngineUnavailable):
    """A process that held a part of the model ended, failed, or did not answer in time."""

    code = "device_lost"
    remedy = "Restart the worker; its log says what the process of that rank ended with."


class ModelNotTraceable(EngineUnavailable):
    """The engine can load the model, but not show what a trace commits to."""

    code = "model_not_traceable"
    remedy = 'Serve this model with engine.kind = "torch".'


class EngineOutOfMemory(EngineUnavailable):
    """Weights, key-value cache or captured states do not fit."""

    code = "out_of_memory"
    remedy = (
        "Lower engine.max_batch, or engine.max_tokens down to the model's context, or free memory."
    )


class NonFiniteLogits(ModelError):
    """The logits hold NaN or infinity, so no token can be chosen."""

    code = "non_finite_logits"
    remedy = "The weights or the engine are broken; do not commit to this trace."


class EvidenceError(VeriLLMError):
    """Evidence that does not hold together; `reason` is what the verdict will say."""

    code = "bad_evidence"
    remedy = "Fetch the bundle again, from another party; if it stays so, challenge the claim."

    def __init__(self, reason: Reason, fact: str, party: int | None = None) -> None:
        who = "" if party is None else f"party {party}: "
        super().__init__(f"{reason.name.lower()}: {who}{fact}", reason=reason, party=party)
        self.reason = reason
        self.fact = fact
        self.party = party


class DrawExhausted(VeriLLMError):
    """The draw did not find enough distinct owners within its bound of steps."""

    code = "draw_exhausted"
    remedy = "More operators must take seats for this model."

    def __init__(self, found: int, required: int) -> None:
        super().__init__(f"drew {found} distinct owners of {required}", found=found)
        self.found = found
        self.required = required


class ChainError(VeriLLMError):
    """Something about the chain."""

    code = "chain_error"
    remedy = "Check the RPC endpoint."


class ChainUnreachable(ChainError):
    """No answer from the RPC endpoint."""

    code = "chain_unreachable"
    remedy = "Check the RPC endpoint and the network between."

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url}: {problem}", url=url)
        self.url = url
        self.problem = problem


class TransactionFailed(ChainError):
    """A transaction reverted; `error` names the contract's custom error, `arguments` its values."""

    code = "transaction_failed"
    remedy = "The contract's error names the fact; docs/protocol.md says what it demands."

    def __init__(self, error: str, arguments: tuple[Any, ...] = (), transaction: str = "") -> None:
        listed = ", ".join(map(str, arguments))
        super().__init__(f"reverted with {error}({listed})", error=error, arguments=arguments)
        self.error = error
        self.arguments = arguments
        self.transaction = transaction


class WrongChain(ChainError):
    """The endpoint serves another chain, or the contract is not there."""

    code = "wrong_chain"
    remedy = "Point at the chain and the contract of the deployment."

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"this is chain {actual}, not {expected}", expected=expected)
        self.expected = expected
        self.actual = actual


class BeaconLost(ChainError):
    """The chain no longer knows the block hash that a draw needs."""

    code = "beacon_lost"
    remedy = "Run a watcher that calls keep(block) in time."

    def __init__(self, block: int) -> None:
        super().__init__(f"the hash of block {block} is no longer known", block=block)
        self.block = block


class ConfigError(VeriLLMError):
    """Something about this machine's set-up."""

    code = "bad_config"
    remedy = "Correct the named setting."


class WrongPassword(ConfigError):
    """The keystore does not open."""

    code = "wrong_password"
    remedy = "Give the password that the keystore was made with."

    def __init__(self, path: object) -> None:
        super().__init__(f"the password does not open {path}", path=str(path))
        self.path = str(path)


class PortInUse(ConfigError):
    """Another process listens there."""

    code = "port_in_use"
    remedy = "Choose another port, or stop the process that holds it."

    def __init__(self, port: int, problem: str = "in use") -> None:
        super().__init__(f"port {port}: {problem}", port=port)
        self.port = port


class MissingTool(ConfigError):
    """A program that this command needs is not installed."""

    code = "missing_tool"
    remedy = "Install the named program."

    def __init__(self, tool: str, detail: str = "not found") -> None:
        super().__init__(f"{tool}: {detail}", tool=tool)
        self.tool = tool
        self.detail = detail


class NodeError(VeriLLMError):
    """Something about a node."""

    code = "node_error"
    remedy = "Try again; if it stays so, look at the node's log."


class NoWorkers(NodeError):
    """No worker can take this job now."""

    code = "no_workers"
    remedy = "Try again later, or at a higher price."


class WorkerFailed(NodeError):
    """A worker broke off or answered wrongly."""

    code = "worker_failed"
    remedy = "Try again; the scheduler will pick another worker."


class RemoteError(NodeError):
    """What the far side answered: its own code, message and remedy."""

    code = "remote_error"

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remote_code = code
        self.remote_remedy = remedy

    def to_dict(self) -> dict[str, str]:
        """The far side's own error, passed on."""
        return {"code": self.remote_code, "message": self.message, "remedy": self.remote_remedy}


class NotFound(NodeError):
    """No such task, job or file here."""

    code = "not_found"
    remedy = "Check the id, and that this is the node that holds it."


class Timeout(NodeError):
    """No answer in time."""

    code = "timeout"
    remedy = "Try again; check that the peer is up."
