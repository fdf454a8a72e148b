"""Encrypted keystores (Web3 Secret Storage): an operator key owns stake, a hot key signs.

A key never lies on disk in clear, and a keystore is readable by its owner alone.
"""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress
from eth_utils.address import to_checksum_address

from verillm.errors import ConfigError, WrongPassword
from verillm_node.files import write_atomically

OWNER_ONLY = 0o600
SCRYPT_ROUNDS = 1 << 18
"""The Web3 default: about a second and 256 MiB, once a start."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both keys of one operator."""

    operator: LocalAccount
    hot: LocalAccount


def create(path: Path, password: str, rounds: int = SCRYPT_ROUNDS) -> LocalAccount:
    """Makes a new key at `path`; refuses to overwrite one."""
    return store(path, Account.create(), password, rounds)


def store(
    path: Path, account: LocalAccount, password: str, rounds: int = SCRYPT_ROUNDS
) -> LocalAccount:
    """Encrypts `account` at `path`; refuses to overwrite a key, for it may own stake."""
    if path.exists():
        raise ConfigError(f"{path} already holds a key; move it away first")
    keystore = Account.encrypt(account.key, password, kdf="scrypt", iterations=rounds)
    write_atomically(path, json.dumps(keystore).encode(), OWNER_ONLY)
    return account


def load(path: Path, password: str) -> LocalAccount:
    """Opens a keystore; raises `WrongPassword`, or `ConfigError` where there is none to open."""
    keystore = _read(path)
    try:
        key = Account.decrypt(keystore, password)
    except (ValueError, TypeError, KeyError) as error:
        if "MAC" in str(error):
            raise WrongPassword(str(path)) from error
        raise ConfigError(f"{path} is not a keystore: {error}") from error
    account: LocalAccount = Account.from_key(key)
    return account


def load_pair(operator: Path, hot: Path, password: str) -> KeyPair:
    """Opens both keystores of one operator."""
    return KeyPair(load(operator, password), load(hot, password))


def address(path: Path) -> ChecksumAddress:
    """The address that a keystore names, without opening it."""
    named = _read(path).get("address")
    if not isinstance(named, str):
        raise ConfigError(f"{path} names no address")
    return to_checksum_address("0x" + named.removeprefix("0x"))


def read_password(path: Path) -> str:
    """The first line of a password file, which only its owner may read."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the password file {path}: {error}") from error
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f"others can read {path}; run: chmod 600 {path}")
    lines = text.splitlines()
    return lines[0] if lines else ""


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the keystore {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a keystore") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a keystore")
    return found
