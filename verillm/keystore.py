"""Encrypted keys on disk: Web3 Secret Storage, one file a key, readable by its owner alone."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Final

from eth_account import Account
from eth_account.signers.local import LocalAccount

from verillm.errors import ConfigError, WrongPassword

_RAW_KEY: Final = re.compile(r"(0x)?[0-9a-fA-F]{64}")
ROUNDS: Final = 1 << 18
"""scrypt's cost, the Web3 default: about a second and 256 MiB."""


def create(path: Path, password: str, *, rounds: int = ROUNDS) -> LocalAccount:
    """A new key, encrypted at `path`; raises ConfigError rather than overwrite another."""
    account: LocalAccount = Account.create()
    content = json.dumps(Account.encrypt(account.key, password, kdf="scrypt", iterations=rounds))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", opener=_owner_only, encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise ConfigError(f"{path} exists already; move it away first") from error
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return account


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def load(path: Path, password: str) -> LocalAccount:
    """The key at `path`; raises WrongPassword, and ConfigError if there is no keystore."""
    if _RAW_KEY.fullmatch(path.name):  # its own words would show the key
        raise ConfigError("a keystore's path was expected, and a raw key given")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the keystore {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a keystore") from error
    try:
        key = Account.decrypt(content, password)
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        if "MAC" in str(error):
            raise WrongPassword(path) from error
        raise ConfigError(f"{path} is not a keystore: {error}") from error
    account: LocalAccount = Account.from_key(key)
    return account


def password(file: str | None) -> str:
    """A keystore's password: the first line of `file`, or VERILLM_PASSWORD; raises ConfigError."""
    if file:
        return read_password(Path(file))
    if (found := os.environ.get("VERILLM_PASSWORD")) is not None:
        return found
    raise ConfigError("no password: give --password-file or set VERILLM_PASSWORD")


def read_password(path: Path) -> str:
    """The first line of a password file that only its owner may read; raises ConfigError."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the password file {path}: {error}") from error
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f"others may read {path}: chmod 600 {path}")
    return lines[0] if lines else ""
