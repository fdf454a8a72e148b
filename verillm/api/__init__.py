"""What travels over HTTP between client, scheduler and worker: paths, JSON bodies, stream events.

Client to scheduler:
    GET  /v1/info                    Info
    GET  /v1/models                  Models
    GET  /v1/models/{id}/tokenizer   bytes of tokenizer.json, sha256 = the spec's tokenizerHash
    GET  /v1/models/{id}/template    bytes of the chat template, sha256 = the spec's templateHash
    POST /v1/quotes                  QuoteRequest → SignedQuote
    POST /v1/jobs                    JobSubmission → stream: accepted, token, restart, receipt,
                                     posted, sealed, claimed, final, error
    GET  /v1/jobs/{id}               JobStatus
    GET  /v1/jobs/{id}/events        the same stream after Last-Event-ID
    GET  /v1/jobs/{id}/bundle        bundle bytes (VLB1)
Scheduler, verifier or auditor to worker:
    GET  /v1/info                    Info
    POST /v1/tasks                   TaskSubmission → stream: token, commitment, error
    GET  /v1/tasks/{id}              TaskStatus
    GET  /v1/tasks/{id}/events       the same stream after Last-Event-ID
    GET  /v1/tasks/{id}/opening?item=0&full=1,2&final=3   opening bytes (VLO1), once sealed on chain
    POST /v1/jobs/{id}/attest        bundle bytes → SignedAttestation
Both: GET /healthz, GET /metrics.

A POST of a job or task that is already known is answered by its stream from the first event (or
after Last-Event-ID), so a client may send it again after a broken connection and pays once.
A refusal is 4xx or 5xx with ErrorBody; a failure after the stream began is its `error` event.

JSON: hashes and bytes are lower-case 0x hex; integers of more than 53 bits are decimal strings,
since JavaScript cannot count them, and all others are numbers. Parsers are strict: unknown,
missing or doubled keys, wrong types and numbers out of range raise MalformedError, which names the
field.
"""

from verillm.api.bodies import (
    Info,
    JobStatus,
    JobSubmission,
    ModelOffer,
    Models,
    QuoteRequest,
    SignedAttestation,
    SignedQuote,
    TaskStatus,
    TaskSubmission,
)
from verillm.api.events import (
    AcceptedEvent,
    CommitmentEvent,
    FailedEvent,
    JobEvent,
    ReceiptEvent,
    RestartEvent,
    StageEvent,
    TaskEvent,
    TokenEvent,
    encode_event,
    parse_job_event,
    parse_task_event,
)
from verillm.api.fields import (
    Fields,
    Json,
    dumps,
    loads,
    parse_address,
    parse_hash,
    parse_hex,
    parse_tokens,
    to_hex,
)
from verillm.api.limits import (
    MAX_BODY_BYTES,
    MAX_DEPTH,
    MAX_REQUESTS,
    MAX_TEXT,
    MAX_TOKENS,
    SIGNATURE_BYTES,
)
from verillm.api.paths import (
    INFO,
    JOBS,
    MODELS,
    QUOTES,
    TASKS,
    VERSION,
    job_path,
    opening_query,
    parse_positions,
    task_path,
    template_path,
    tokenizer_path,
)
from verillm.api.refusal import ErrorBody, status_of
from verillm.api.structs import (
    bound,
    item_from_json,
    item_to_json,
    request_from_json,
    request_to_json,
    task_from_json,
    task_to_json,
)

__all__ = [
    "INFO",
    "JOBS",
    "MAX_BODY_BYTES",
    "MAX_DEPTH",
    "MAX_REQUESTS",
    "MAX_TEXT",
    "MAX_TOKENS",
    "MODELS",
    "QUOTES",
    "SIGNATURE_BYTES",
    "TASKS",
    "VERSION",
    "AcceptedEvent",
    "CommitmentEvent",
    "ErrorBody",
    "FailedEvent",
    "Fields",
    "Info",
    "JobEvent",
    "JobStatus",
    "JobSubmission",
    "Json",
    "ModelOffer",
    "Models",
    "QuoteRequest",
    "ReceiptEvent",
    "RestartEvent",
    "SignedAttestation",
    "SignedQuote",
    "StageEvent",
    "TaskEvent",
    "TaskStatus",
    "TaskSubmission",
    "TokenEvent",
    "bound",
    "dumps",
    "encode_event",
    "item_from_json",
    "item_to_json",
    "job_path",
    "loads",
    "opening_query",
    "parse_address",
    "parse_hash",
    "parse_hex",
    "parse_job_event",
    "parse_positions",
    "parse_task_event",
    "parse_tokens",
    "request_from_json",
    "request_to_json",
    "status_of",
    "task_from_json",
    "task_path",
    "task_to_json",
    "template_path",
    "to_hex",
    "tokenizer_path",
]
