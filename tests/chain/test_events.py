"""What a stranger's events do to whoever reads the chain: nothing."""

from dataclasses import replace
from typing import Any

import pytest
from eth_abi.abi import encode
from web3.types import RPCEndpoint, RPCResponse

from tests.chain.conftest import Net
from tests.chain.world import World
from verillm.chain import artifacts
from verillm.chain.anvil import dev_account
from verillm.chain.contract import Call, Chain, Log
from verillm.chain.events import EVENTS, EndpointSet, ModelRegistered, parse_log, stream, topic_of
from verillm.chain.rpc import AnswerTooLong, HttpProvider
from verillm.errors import ChainUnreachable, MalformedError, UnknownModel
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


class Narrow(HttpProvider):
    """A server that answers no more than a few blocks' logs at once."""

    widest = 4
    too_long = False

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        if method == "eth_getLogs":
            span = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1
            if span > self.widest and self.too_long:
                raise AnswerTooLong(self.url, "answer over 1 bytes")
            if span > self.widest:
                refusal = {"code": -32005, "message": "query returned more than 10000 results"}
                return {"jsonrpc": "2.0", "id": 1, "error": refusal}  # type: ignore[typeddict-item]
        return super().make_request(method, params)


@pytest.mark.parametrize("too_long", [False, True])
def test_logs_that_are_too_many_for_one_answer_are_asked_for_in_parts(
    net: Net, too_long: bool
) -> None:
    # Anyone can write events until any range of blocks is too much for one answer.
    world = World(net)
    server = Narrow(net.anvil.url)
    server.too_long = too_long
    chain = Chain(server, net.deployment)
    assert list(stream(chain)) == list(stream(world.chain(world.client)))
    server.widest = 0
    with pytest.raises(ChainUnreachable):
        list(stream(chain))
    server.close()
