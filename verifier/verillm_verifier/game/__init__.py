"""The indistinguishability game: how much better than chance can a worker guess its role?

A worker is asked to infer or to verify by the same call, and learns which it was from the chain,
after it has committed. Here an adversary that sees and remembers all that a worker does guesses
beforehand; what it guesses from is the traffic of a devnet (`verillm-node traffic`).
"""

from verillm_verifier.game.command import main

__all__ = ["main"]
