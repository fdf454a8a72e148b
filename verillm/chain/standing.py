"""Whether what stands on a chain is what an addresses file names: code, terms, cross addresses."""

from collections.abc import Iterator
from dataclasses import replace

from verillm.chain import artifacts
from verillm.chain.contract import Call, Chain
from verillm.chain.deployment import CODED, ZERO_ADDRESS, Config, Deployment, Made
from verillm.chain.plan import Step
from verillm.chain.survey import STRANGER, code_at, expected_codes
from verillm.errors import VeriLLMError
from verillm.hashing import keccak
from verillm.types import ChecksumAddress, Hash32


def code_hashes(
    chain: Chain,
    contract: ChecksumAddress,
    extensions: tuple[ChecksumAddress, ...],
    config: Config,
) -> tuple[Hash32, ...]:
    """Hashes of the code that stands, in the order of `CODED`."""
    addresses = (contract, *extensions, config.adjudicator, config.prover)
    return tuple(keccak(code_at(chain, address)) for address in addresses)


def differences(chain: Chain, deployment: Deployment, made: Made) -> tuple[str, ...]:
    """Everything in which the chain differs from what was planned, as sentences; () if nothing."""
    return tuple(_differences(chain, deployment, made))


def _differences(chain: Chain, deployment: Deployment, made: Made) -> Iterator[str]:
    steps = _creations(deployment, made)
    hashes = dict(zip(CODED, made.code_hashes, strict=True))
    for step, expected in zip(steps, expected_codes(chain, steps), strict=True):
        code = code_at(chain, step.address) if step.address else b""
        if code != expected:
            yield f"the code at {step.address} is not {step.name}'s of this version and these terms"
        if keccak(code) != hashes[step.name]:
            yield f"the code of {step.name} at {step.address} is not what the file names"
    config = _config_of(chain, deployment.contract)
    if config != made.config:
        for part, stands in made.config.to_json().items():
            named = None if config is None else config.to_json()[part]
            if named != stands:
                yield f"the contract's {part} is {named}, planned was {stands}"
    cross = (deployment.token, deployment.adjudicator, deployment.prover)
    if cross != (made.config.token, made.config.adjudicator, made.config.prover):
        yield "the file's addresses are not those of its own terms"
    if made.extensions[0] != made.config.recourse:
        yield "the file's first extension is not its own terms' recourse"


def _creations(deployment: Deployment, made: Made) -> list[Step]:
    """The creations that lead to what a file names, as if they were still to be sent."""
    shared = replace(made.config, recourse=ZERO_ADDRESS)
    followers = (*made.extensions[1:], ZERO_ADDRESS)
    named: list[tuple[str, ChecksumAddress, tuple[object, ...]]] = [
        ("Adjudicator", made.config.adjudicator, ()),
        ("Prover", made.config.prover, ()),
    ]
    chained = list(zip(artifacts.EXTENSIONS, made.extensions, followers, strict=True))
    named += [(name, address, (shared, follower)) for name, address, follower in reversed(chained)]
    named.append(("VeriLLM", deployment.contract, (made.config,)))
    return [
        Step(name, 0, Call(name, None, artifacts.artifact(name).constructor(*values)), address)
        for name, address, values in named
    ]


def _config_of(chain: Chain, contract: ChecksumAddress) -> Config | None:
    entry = artifacts.functions("VeriLLM")["config"]
    try:
        answer = chain.simulate(Call("config", contract, entry.encode()), STRANGER)
        (config,) = artifacts.decode(entry.outputs, answer, [Config])
    except VeriLLMError:
        return None
    found: Config = config
    return found
