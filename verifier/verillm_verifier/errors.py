"""What only an auditor meets; the tree continues `verillm.errors`.

::

    InputError
    ├── UnknownJob (unknown_job)                no such job on this chain
    └── AmbiguousJob (ambiguous_job)            a prefix that several jobs share
    ChainError
    └── InconsistentChain (inconsistent_chain)  answers of the RPC endpoint that cannot all be true
    NodeError
    └── BundleUnavailable (bundle_unavailable)  nobody hands out the evidence
"""

from verillm.errors import ChainError, InputError, NodeError


class UnknownJob(InputError):
    """No such job on this chain."""

    code = "unknown_job"
    remedy = "List what there is with `verillm-audit jobs`; check --deployment."


class AmbiguousJob(InputError):
    """Several jobs begin with this prefix."""

    code = "ambiguous_job"
    remedy = "Give more digits of the job's id."


class InconsistentChain(ChainError):
    """The endpoint's answers cannot all be true, or the contract is not VeriLLM."""

    code = "inconsistent_chain"
    remedy = "Ask another RPC endpoint; if it says the same, do not trust this deployment."


class BundleUnavailable(NodeError):
    """Nobody hands out the evidence, or not within bounds."""

    code = "bundle_unavailable"
    remedy = "Give a copy with --bundle, or challenge the claim: then the openings go on chain."
