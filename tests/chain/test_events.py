"""What a stranger's events do to whoever reads the chain: nothing."""

from dataclasses import replace

import pytest
from eth_abi.abi import encode

from tests.chain.conftest import Net
from tests.chain.world import World
from verillm.chain import artifacts
from verillm.chain.anvil import dev_account
from verillm.chain.contract import Call, Log
from verillm.chain.events import EVENTS, EndpointSet, ModelRegistered, parse_log, stream, topic_of
from verillm.errors import MalformedError, UnknownModel
from verillm.hashing import keccak
from verillm.model import model_id
from verillm.types import Hash32, ModelId
from verillm_node.registry import Registry

NO_TEXT = b"\xff\xfe"


def test_an_endpoint_that_is_no_text_is_passed_over(net: Net) -> None:
    # Anyone may send it, and it stays in the log for good: it must not blind those who read on.
    world = World(net)
    worker, stranger = world.workers[0], dev_account(9)
    data = artifacts.functions("VeriLLM")["setEndpoint"].selector + encode(["bytes"], [NO_TEXT])
    world.send(stranger, Call("setEndpoint", net.deployment.contract, data))
    world.send(worker.account, world.calls.set_endpoint("http://worker"))
    chain = world.chain(world.client)
    assert [each.event.endpoint for each in stream(chain, (EndpointSet,))] == ["http://worker"]
    members = Registry(chain, 0).members(world.model)
    assert [each.endpoint for each in members] == ["http://worker"]


def test_a_model_whose_name_is_no_text_is_unknown_and_hides_no_other(net: Net) -> None:
    world = World(net)
    mark = "MARK"
    spec = replace(world.spec, name=mark)
    call = world.calls.register_model(spec)
    data = call.data.replace(mark.encode(), NO_TEXT * 2)
    world.send(world.client, replace(call, data=data))
    chain = world.chain(world.client)
    found = [each.event for each in stream(chain, EVENTS)]
    seen = [event.model_id for event in found if isinstance(event, ModelRegistered)]
    assert seen == [world.model]
    with pytest.raises(UnknownModel):
        chain.model(ModelId(keccak(data[4:])))
    assert model_id(chain.model(world.model)) == world.model


def test_a_log_that_the_contract_cannot_have_written_is_malformed() -> None:
    topics = (topic_of(EndpointSet), Hash32(bytes(32)))
    log = Log("0x" + "00" * 20, topics, b"\x01", 1, topics[1], topics[1], 0)  # type: ignore[arg-type]
    with pytest.raises(MalformedError):
        parse_log(log)
    unknown = (b"\x00" * 31 + b"\x63") * 2  # an outcome and a reason that do not exist
    finalized = next(kind for kind in EVENTS if kind.__name__ == "Finalized")
    with pytest.raises(MalformedError):
        parse_log(replace(log, topics=(topic_of(finalized), Hash32(bytes(32))), data=unknown))
