"""The network's contracts once more, as plain Python: the in-memory side of the `Chain` seam.

Read it to learn the rules; `tests/chain/test_machine.py` holds it against the deployed contracts.
It computes with `verillm.draw`, `records`, `settlement`, `statistics` and `verdict`, and asks no
chain. A module stands for a contract's part: `Ledger` → `Roster` → `Docket` → `Summons` →
`Adjudicator` → `Rulings` → `Disputes` → `Demands` → `Appeals` → `Convictions` → `Wages` →
`Network`.
"""

from tests.reference.network import Block, Network
from tests.reference.state import Refused

__all__ = ["Block", "Network", "Refused"]
