"""A daemon's settings: one TOML file, parsed strictly into frozen dataclasses.

An unknown name, a missing one or a wrong type is an error that says where; relative paths are read
from the file's own folder.
"""

import dataclasses
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from verillm.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """Where the chain is, and which deployment on it counts."""

    rpc: str
    deployment: Path
    confirmations: int = 0
    poll_seconds: float = 0.5
    gas_reserve_wei: int = 10**17
    """The operator tops its hot key up to twice this at start. It must pay for a whole public
    round: some 60 million gas, or whoever is judged cannot open in time."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Both keystores, and the file with their password (else VERILLM_PASSWORD, else a prompt)."""

    operator: Path
    hot: Path
    password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where the API listens, and under which URL others reach it."""

    host: str = "127.0.0.1"
    port: int = 8700
    endpoint: str | None = None

    @property
    def url(self) -> str:
        """What is published on the chain."""
        return self.endpoint or f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Which engine runs the model, and how much of the machine it may take."""

    kind: Literal["torch", "vllm", "tiny"] = "torch"
    model: Path | None = None
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    threads: int = 0
    max_batch: int = 8
    max_tokens: int = 16384
    attention: str | None = None
    """The attention kernel, as the engine names it; none leaves the engine the choice."""
    compiled: bool = False
    """vLLM only: torch.compile, and CUDA graphs on GPUs; a start takes minutes."""
    devices: int = 1
    stages: int = 1
    """vLLM only: devices that share each layer, and stages of layers, each of so many devices."""
    states_memory_mib: int = 4096
    states_disk_mib: int = 65536
    """vLLM only: captured states of running tasks, in memory and then in `home`."""
    transform: str | None = None
    """`module:function` applied to the loaded weights; only where `devnet = true`."""


@dataclass(frozen=True, slots=True)
class DefendSettings:
    """What a worker that watches sends unasked where what stands is against it, or is provably
    wrong."""

    prove: bool = True
    """Send objective proofs that its evidence holds."""
    reverify: bool = True
    """Ask for a re-verification where more is at stake than its bond."""
    bonds: int = 2
    """Re-verifications under way at the same time."""
    losses: int = 1
    """Re-verifications that may be lost, ever, before no more is asked for."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Everything that `verillm-node worker` needs."""

    home: Path
    spec: Path
    chain: ChainSettings
    keys: KeySettings
    http: HttpSettings
    engine: EngineSettings
    price: int
    seats: int = 1
    trace_ttl_seconds: int = 7 * 86400
    max_tasks: int = 64
    watch: bool = True
    watch_seconds: float = 1.0
    """How often the claims of own jobs are looked at; far below the dispute window."""
    defend: DefendSettings = DefendSettings()
    devnet: bool = False
    log_level: str = "INFO"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model that a scheduler sells: its spec, its folder (tokenizer and head rows), its price."""

    spec: Path
    unit_price: int
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Everything that `verillm-node scheduler` needs."""

    home: Path
    chain: ChainSettings
    keys: KeySettings
    http: HttpSettings
    models: tuple[ModelSettings, ...]
    stake: int = 0
    """Brought up to this much at start, in token units: jobs bond it."""
    quote_seconds: int = 900
    """A job must be posted before its quote expires, so this outlasts the longest inference."""
    stall_seconds: float = 60.0
    """Without a token for so long, a worker counts as dead and the job moves on."""
    max_jobs: int = 64
    patience_seconds: float = 60.0
    """How long a party may fail to open before the bundle goes out without it."""
    summon_seconds: int = 600
    """From when on a member of a committee that does not answer is summoned on the chain, after
    `post`; at most half of the window to seal. From then on its role is public."""
    shuffle_seconds: float = 120.0
    """Verification tasks leave after a random wait of at most this, like requests of their own."""
    dummy_tokens: int = 8
    """Tokens at most that a verifier decodes beside its prefill where an answer was cut short; one
    that ended by itself ends at once again, and costs none. More hides the role better."""
    fair_turns: bool = False
    """Jobs go round in turn, and not by lot among those with few running; tells roles."""
    contract_wallets: bool = False
    """Serve clients whose account has code, at the risk that their signature no longer holds when
    the tokens are out and the job is to be posted: nobody pays for it then."""
    judge_claims: bool = True
    """Post a job that a worker claims to have done and whose tokens never came here, at our cost
    of at most what it wants, so that a committee judges them."""
    log_level: str = "INFO"


def load(path: Path, kind: type[T]) -> T:
    """Reads `path` as a `kind`; raises `ConfigError` with the name of the field at fault."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return parse(table, kind, path.resolve().parent)


def parse(table: dict[str, Any], kind: type[T], base: Path, where: str = "") -> T:
    """Turns one table into one dataclass, by its annotations."""
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in table.keys() - fields.keys():
        raise ConfigError(f"unknown setting {where}{name}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _value(table[name], hints[name], base, where + name)
        elif _required(field):
            raise ConfigError(f"missing setting {where}{name}")
    return kind(**values)


def _required(field: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _value(given: object, hint: Any, base: Path, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (option for option in get_args(hint) if option is not type(None))
        return _value(given, hint, base, where)
    if origin is tuple:
        return _tuple(given, get_args(hint)[0], base, where)
    if origin is Literal:
        if given not in get_args(hint):
            raise ConfigError(f"{where} must be one of {', '.join(get_args(hint))}")
        return given
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(given, dict):
        return parse(given, hint, base, where + ".")
    return _scalar(given, hint, base, where)


def _tuple(given: object, hint: Any, base: Path, where: str) -> tuple[Any, ...]:
    if not isinstance(given, list):
        raise ConfigError(f"{where} must be a list")
    return tuple(_value(item, hint, base, f"{where}[{at}]") for at, item in enumerate(given))


def _scalar(given: object, hint: Any, base: Path, where: str) -> Any:
    if hint is Path and isinstance(given, str):
        return base / Path(given).expanduser()
    if hint is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if hint in (int, float, str, bool) and type(given) is hint:
        return given
    raise ConfigError(f"{where} must be a {getattr(hint, '__name__', hint)}, not {given!r}")
