"""The deployed Prover beside the Python reference: random and extreme inputs give the same bits."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.chain.conftest import Net
from tests.unit.verillm.test_margins import SEED, VALUE
from verillm.chain import artifacts
from verillm.chain.anvil import dev_account
from verillm.chain.calls import Call
from verillm.errors import InputError, TransactionFailed
from verillm.proofs.margins import Margin, margin_of
from verillm.trace import state_bytes
from verillm.types import Bits

STATES = st.lists(VALUE | st.sampled_from([0x7F80, 0xFFC0]), min_size=16, max_size=16)
IDS = st.integers(0, 2**32 - 1)
TEMPERATURES = st.sampled_from([0, 1, 800_000, 1_000_000, 2_000_000, 2**32 - 1])


def asked(
    net: Net, rows: tuple[Bits, Bits, Bits], position: int, token: int, rival: int, heat: int
) -> Margin | str:
    """The contract's margin, or the name of its refusal."""
    entry = artifacts.functions("Prover")["marginOf"]
    words = [state_bytes(row) for row in rows]
    data = entry.encode(*words, SEED, position, token, rival, heat)
    account = dev_account(0)
    try:
        answer = net.chain(account).simulate(Call("marginOf", net.deployment.prover, data))
    except TransactionFailed as refused:
        return refused.error
    return Margin(*(int.from_bytes(answer[at : at + 32], "big", signed=True) for at in (0, 32, 64)))


@given(STATES, STATES, STATES, IDS, IDS, IDS, TEMPERATURES)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_provers_margin_is_the_references(
    net: Net,
    state: list[int],
    own: list[int],
    other: list[int],
    position: int,
    token: int,
    rival: int,
    heat: int,
) -> None:
    final, first, second = (np.array(bits, np.uint16) for bits in (state, own, other))
    found = asked(net, (final, first, second), position, token, rival, heat)
    try:
        expected = margin_of(final, first, second, SEED, position, token, rival, heat)
    except InputError:
        assert found in ("NotFinite", "ProductTooLarge")
        return
    assert found == expected


def test_rows_of_unequal_length_are_refused(net: Net) -> None:
    state, row = np.full(16, 0x3F80, np.uint16), np.full(32, 0x3F80, np.uint16)
    assert asked(net, (state, state, row), 0, 1, 2, 0) == "ProofInvalid"
    with pytest.raises(ValueError, match="argument 2"):
        margin_of(state, state, row, SEED, 0, 1, 2, 0)
