"""Objective proofs: what one call shows on chain without a committee (docs/protocol.md §8)."""
