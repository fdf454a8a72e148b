"""What only an auditor meets; the tree continues `verillm.errors`.

::

    InputError
    ├── UnknownJob (unknown_job)                no such job on this chain
    ├── AmbiguousJob (ambiguous_job)            a prefix that several jobs share
    ├── NotDisputable (not_disputable)          nothing stands that could be re-verified
    ├── WindowOver (window_over)                it stood too long
    ├── AlreadyReverified (already_reverified)  once a job
    ├── RoundForced (round_forced)              a public round comes first
    ├── TooFewOwners (too_few_owners)           nobody to draw a larger committee from
    ├── BondNotCovered (bond_not_covered)       free stake below the bond
    ├── ContentsMissing (contents_missing)      a bundle without what must be supplied
    └── ContentsOutOfBounds (contents_out_of_bounds)  a text that no worker can run
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


class NotDisputable(InputError):
    """Neither a claim nor a verdict stands that a re-verification could be asked of."""

    code = "not_disputable"
    remedy = "Ask while a claim or a public round's verdict stands; `verillm-audit show` says when."


class WindowOver(InputError):
    """A job can no longer be disputed."""

    code = "window_over"
    remedy = "See what `verillm-audit prove` finds: proofs are heard whenever they come."


class AlreadyReverified(InputError):
    """A job is re-verified once, and that was asked for."""

    code = "already_reverified"
    remedy = "Nothing is left to ask; `verillm-audit show` says what the new committee finds."


class RoundForced(InputError):
    """The draw demands a public round of this job before anything else."""

    code = "round_forced"
    remedy = "Challenge the claim, which is free here; its verdict can be re-verified."


class TooFewOwners(InputError):
    """Fewer owners hold seats than a larger committee needs."""

    code = "too_few_owners"
    remedy = "Challenge the claim instead, or have more operators take seats for this model."


class BondNotCovered(InputError):
    """The free stake of the key's operator is below the bond."""

    code = "bond_not_covered"
    remedy = "Add stake (`approve` at the token, `addStake`), or send from a key that has some."


class ContentsMissing(InputError):
    """The bundle lacks a checked request of the job, or holds another text."""

    code = "contents_missing"
    remedy = "Give the job's own bundle with --bundle; `verillm-audit demand` gets a claim's."


class ContentsOutOfBounds(InputError):
    """A checked request or its output is none that a worker could run: nobody is drawn for it."""

    code = "contents_out_of_bounds"
    remedy = "Run `verillm-audit prove`: who signed such a text is convicted by it alone."

    def __init__(self, request: int, bound: str) -> None:
        super().__init__(f"no worker can run request {request}: {bound}", bound=bound)
        self.request = request
        self.bound = bound


class InconsistentChain(ChainError):
    """The endpoint's answers cannot all be true, or the contract is not VeriLLM."""

    code = "inconsistent_chain"
    remedy = "Ask another RPC endpoint; if it says the same, do not trust this deployment."


class BundleUnavailable(NodeError):
    """Nobody hands out the evidence, or not within bounds."""

    code = "bundle_unavailable"
    remedy = "Give a copy with --bundle, or challenge the claim: then the openings go on chain."
