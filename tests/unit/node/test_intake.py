"""What a scheduler refuses before anything is spent: each with its own code."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from eth_account import Account

from verillm.api import JobSubmission, SignedQuote
from verillm.errors import ReplayError, TokensOutOfBounds, VeriLLMError
from verillm.hashing import sha
from verillm.model import model_id
from verillm.request import Job, Quote, Request, Sampling, requests_root
from verillm.settlement import bond_of, least_lock
from verillm.signing import sign, struct_hash
from verillm.types import Hash32, JobId
from verillm_node.intake import (
    LEAST_SECONDS,
    ClientStanding,
    check_client,
    check_job,
    check_times,
)
from verillm_node.jobs import JobBook
from verillm_node.store import Database

from ..verillm.builders import DOMAIN, SPEC

SCHEDULER, HOT, CLIENT = (Account.from_key(name * 32) for name in (b"s", b"h", b"c"))
NOW, PRICE = 1_000_000, 10
REQUEST = Request(sha(b"salt"), (1, 2, 3), 5, Sampling.of())


def _quote(**changes: object) -> Quote:
    quote = Quote(SCHEDULER.address, model_id(SPEC), PRICE, sha(b"draw"), NOW + 600)
    return replace(quote, **changes)  # type: ignore[arg-type]


def _submission(
    *requests: Request, quote: Quote | None = None, key: object = HOT, **changes: object
) -> JobSubmission:
    quote = quote or _quote()
    asked = requests or (REQUEST,)
    job = Job(
        client=CLIENT.address,
        quote=struct_hash(quote),
        requests_root=requests_root(asked),
        requests=len(asked),
        max_fee=PRICE * 8 * len(asked),
        deadline=NOW + 300,
        nonce=7,
    )
    job = replace(job, **changes)  # type: ignore[arg-type]
    signed = SignedQuote(quote, sign(DOMAIN, quote, key))  # type: ignore[arg-type]
    return JobSubmission(signed, job, sign(DOMAIN, job, CLIENT), asked)


def _cheaper() -> SignedQuote:
    return _submission(quote=_quote(unit_price=1)).quote


def _check(submission: JobSubmission) -> None:
    check_job(submission, SPEC, DOMAIN, SCHEDULER.address, HOT.address)
    check_times(submission, NOW, 400)


def test_a_good_job_is_taken() -> None:
    _check(_submission())
    _check(_submission(REQUEST, replace(REQUEST, salt=sha(b"other"))))


def _request(**changes: object) -> JobSubmission:
    return _submission(replace(REQUEST, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: _submission(requests=2), "bad_input"),
        (lambda: _submission(requests_root=sha(b"other")), "bad_input"),
        (lambda: _submission(quote=_quote(scheduler=CLIENT.address)), "bad_input"),
        (lambda: replace(_submission(), quote=_cheaper()), "bad_input"),
        (lambda: _submission(key=CLIENT), "bad_signature"),
        (lambda: _submission(max_fee=PRICE * 8 - 1), "fee_too_low"),
        (lambda: _submission(max_fee=0), "fee_too_low"),
        (lambda: _submission(deadline=NOW + LEAST_SECONDS - 1), "deadline_passed"),
        (lambda: _submission(deadline=NOW + 401), "bad_input"),
        (lambda: _submission(quote=_quote(expiry=NOW)), "quote_expired"),
        (lambda: _request(max_new_tokens=0), "tokens_out_of_bounds"),
        (lambda: _request(max_new_tokens=2**31), "prompt_too_long"),
        (lambda: _request(tokens=(1,) * SPEC.context), "prompt_too_long"),
        (lambda: _request(tokens=(SPEC.vocabulary,)), "tokens_out_of_bounds"),
        (lambda: _request(sampling=Sampling(temperature=2_000_001)), "bad_sampling"),
        (lambda: _request(sampling=Sampling(top_p=0)), "bad_sampling"),
    ],
)
def test_a_bad_job_is_refused_with_its_own_code(
    make: Callable[[], JobSubmission], code: str
) -> None:
    with pytest.raises(VeriLLMError) as caught:
        _check(make())
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (ClientStanding(79, False, NOW, 400), "deposit_too_small"),
        (ClientStanding(10**6, True, NOW, 400), "replay"),
    ],
)
def test_a_client_that_cannot_pay_once_is_refused(standing: ClientStanding, code: str) -> None:
    with pytest.raises(VeriLLMError) as caught:
        check_client(_submission().job, standing)
    assert caught.value.code == code


def test_a_quote_serves_one_job_only(tmp_path: object) -> None:
    database = Database(tmp_path / "store.sqlite")  # type: ignore[operator]
    book, submission = JobBook(database), _submission()
    with pytest.raises(VeriLLMError) as unknown:
        book.nonce_of(submission.job.quote)
    assert unknown.value.code == "quote_expired"
    book.add_quote(submission.job.quote, b"nonce", NOW + 600)
    book.open(JobId(Hash32(b"1" * 32)), submission)
    with pytest.raises(ReplayError):
        book.open(JobId(Hash32(b"2" * 32)), submission)
    assert book.find(JobId(Hash32(b"2" * 32))) is None
    assert book.find(JobId(Hash32(b"1" * 32))) == submission
    book.forget_quotes(NOW + 10_000)  # a used quote is kept: its secret is still needed
    assert book.nonce_of(submission.job.quote) == b"nonce"
    database.close()


def test_lock_and_bond_are_rounded_up_as_the_contract_does() -> None:
    assert least_lock(3, 15_000) == 5
    assert least_lock(4, 15_000) == 6
    assert bond_of(5, 3) * 4 >= (5 + 3) * 5


def test_a_job_too_short_to_be_verified_is_refused() -> None:
    # It would end inconclusive, served for nothing: a request of 1 + 2 tokens has 1 position.
    short = replace(REQUEST, tokens=(1,), max_new_tokens=2)
    with pytest.raises(TokensOutOfBounds, match="positions"):
        _check(_submission(short, short, REQUEST))
    _check(_submission(short, REQUEST))
    _check(_submission(replace(REQUEST, tokens=(1,))))
