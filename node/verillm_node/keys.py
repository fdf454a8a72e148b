"""The two keys of an operator: one owns stake, one signs. Both encrypted (`verillm.keystore`)."""

import json
from dataclasses import dataclass
from pathlib import Path

from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress
from eth_utils.address import is_address, to_checksum_address

from verillm import keystore
from verillm.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both keys of one operator."""

    operator: LocalAccount
    hot: LocalAccount


def load_pair(operator: Path, hot: Path, password: str) -> KeyPair:
    """Opens both keystores of one operator; raises `WrongPassword` or `ConfigError`."""
    return KeyPair(keystore.load(operator, password), keystore.load(hot, password))


def address(path: Path) -> ChecksumAddress:
    """The address that a keystore names, without opening it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the keystore {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a keystore") from error
    named = content.get("address") if isinstance(content, dict) else None
    if not isinstance(named, str) or not is_address("0x" + named.removeprefix("0x")):
        raise ConfigError(f"{path} names no address")
    return to_checksum_address("0x" + named.removeprefix("0x"))
