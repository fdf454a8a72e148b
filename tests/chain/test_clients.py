"""Whose signature a scheduler relies on: a key's; with code on the account, only if it chooses."""

from dataclasses import replace

import pytest
from eth_account import Account

from tests.chain.conftest import Net
from verillm.chain.anvil import dev_account
from verillm.errors import SignatureError
from verillm.request import Job
from verillm.signing import sign
from verillm.types import Hash32
from verillm_node.errors import ContractWallet
from verillm_node.intake import check_signature

CLIENT = Account.from_key(b"\x07" * 32)
ANSWERS_SLOT_0 = "0x5f545f5260205ff3"
"""A wallet that answers every question with what its owner has put into slot 0."""
YES, NO = "0x1626ba7e" + "00" * 28, "0x" + "00" * 32


def _job() -> Job:
    return Job(CLIENT.address, Hash32(b"q" * 32), Hash32(b"r" * 32), 1, 10, 1000, 7)


def _check(net: Net, signature: bytes, contract_wallets: bool = False) -> None:
    check_signature(net.chain(dev_account(0)), _job(), signature, contract_wallets)


def _become_wallet(net: Net, answer: str) -> None:
    net.rpc("anvil_setCode", CLIENT.address, ANSWERS_SLOT_0)
    net.rpc("anvil_setStorageAt", CLIENT.address, "0x0", answer)


def test_a_keys_signature_counts_and_anothers_does_not(net: Net) -> None:
    domain = net.deployment.domain
    _check(net, sign(domain, _job(), CLIENT))
    with pytest.raises(SignatureError):
        _check(net, sign(domain, _job(), dev_account(1)))
    with pytest.raises(SignatureError):
        _check(net, sign(domain, replace(_job(), nonce=8), CLIENT))


def test_an_account_with_code_is_refused_whatever_it_says(net: Net) -> None:
    # With a key as well (EIP-7702): the contract would ask the code, and not the key.
    signature = sign(net.deployment.domain, _job(), CLIENT)
    _become_wallet(net, YES)
    with pytest.raises(ContractWallet):
        _check(net, signature)


def test_a_scheduler_that_takes_wallets_asks_them_each_time(net: Net) -> None:
    _become_wallet(net, YES)
    _check(net, b"whatever it likes", contract_wallets=True)
    _become_wallet(net, NO)
    with pytest.raises(SignatureError):
        _check(net, b"whatever it likes", contract_wallets=True)
