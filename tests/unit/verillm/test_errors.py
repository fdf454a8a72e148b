import inspect

import pytest

from verillm import errors
from verillm.errors import EvidenceError, MalformedError, RemoteError, VeriLLMError
from verillm.types import Reason

TREE = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, VeriLLMError)
]


@pytest.mark.parametrize("error", TREE, ids=lambda each: each.__name__)
def test_each_error_has_its_own_code_and_a_remedy_and_stands_in_the_drawn_tree(
    error: type[VeriLLMError],
) -> None:
    assert error.remedy
    assert [each for each in TREE if each.code == error.code] == [error]
    if error is not VeriLLMError:
        assert error.__name__ in (errors.__doc__ or "")


def test_malformed_error_names_the_field_in_its_body() -> None:
    error = MalformedError("items[3].length", "too long")
    assert error.to_dict() == {
        "code": "malformed",
        "message": "items[3].length: too long",
        "remedy": MalformedError.remedy,
    }
    assert error.field == "items[3].length"


def test_evidence_error_carries_reason_and_party() -> None:
    error = EvidenceError(Reason.LENGTH, "short", 0)
    assert (error.reason, error.party) == (Reason.LENGTH, 0)
    assert "length" in str(error)


def test_remote_error_passes_on_the_far_sides_code() -> None:
    assert RemoteError("replay", "again", "new nonce").to_dict()["code"] == "replay"
