"""What a refusal says, and under which HTTP status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from verillm.api.fields import Fields
from verillm.errors import VeriLLMError


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """A refusal: a stable code, what happened, what to do."""

    code: str
    message: str
    remedy: str

    @classmethod
    def of(cls, error: VeriLLMError) -> Self:
        """What an expected error says of itself."""
        return cls(error.code, str(error), error.remedy)

    def fields(self) -> dict[str, object]:
        """Its three fields, as they stand inside other bodies."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}

    def to_json(self) -> dict[str, object]:
        """The body of a refusal."""
        return {"error": self.fields()}

    @classmethod
    def from_fields(cls, value: object, path: str = "error") -> Self:
        """Parse the three fields."""
        fields = Fields(value, path)
        body = cls(fields.text("code", 64), fields.text("message"), fields.text("remedy"))
        fields.end()
        return body

    @classmethod
    def from_json(cls, value: object, path: str = "body") -> Self:
        """Parse the body of a refusal."""
        fields = Fields(value, path)
        body = fields.take("error", cls.from_fields)
        fields.end()
        return body


_STATUS_OF_CODE: Final[Mapping[str, int]] = {
    "bad_signature": 403,
    "replay": 409,
    "deposit_too_small": 402,
    "fee_too_low": 402,
    "scheduler_overdrawn": 402,
    "quote_expired": 410,
    "deadline_passed": 410,
    "unknown_model": 404,
    "model_mismatch": 409,
    "not_found": 404,
    "not_sealed_yet": 409,
    "not_drawn": 403,
    "contract_wallet": 403,
    "too_many_requests": 429,
    "engine_unavailable": 503,
    "device_lost": 503,
    "out_of_memory": 503,
    "no_workers": 503,
    "worker_failed": 502,
    "timeout": 504,
    "chain_unreachable": 503,
    "wrong_chain": 503,
}


def status_of(code: str, default: int = 400) -> int:
    """HTTP status that carries an error's code; 400 is the sender's mistake."""
    return _STATUS_OF_CODE.get(code, default)
