"""How much a body may hold; whoever reads one refuses more."""

from typing import Final

MAX_BODY_BYTES: Final = 64 << 20
MAX_DEPTH: Final = 32
MAX_REQUESTS: Final = 4096
MAX_TOKENS: Final = 1 << 20
SIGNATURE_BYTES: Final = 65
MAX_TEXT: Final = 65_536
