"""Why a deployment is not begun, or not gone on with; the tree continues `verillm.errors`.

::

    ConfigError
    └── DeployRefused (deploy_refused)
        ├── NotConfirmed (not_confirmed)            a live chain, no dry run or no --yes
        ├── FundsTooLow (funds_too_low)             the deployer cannot pay for the gas
        ├── NotAToken (not_a_token)                 no ERC-20 at the token's address
        ├── FeatureMissing (feature_missing)        the chain lacks what the contracts need
        ├── AlreadyDeployed (already_deployed)      the addresses file names a deployment
        ├── PlanChanged (plan_changed)              a begun deployment had other terms
        ├── NonceTaken (nonce_taken)                the key sent something else meanwhile
        └── DeploymentDiffers (deployment_differs)  what stands there is not as planned
"""

from verillm.errors import ConfigError


class DeployRefused(ConfigError):
    """A deployment that cannot be begun or gone on with as asked."""

    code = "deploy_refused"
    remedy = "Correct what the message names; docs/deploy.md says how a deployment goes."


class NotConfirmed(DeployRefused):
    """A live chain without a dry run of this very plan before, or without the word to go."""

    code = "not_confirmed"
    remedy = "Run the same command without --broadcast, read its plan, then add --broadcast --yes."


class FundsTooLow(DeployRefused):
    """The deployer's balance does not cover the gas."""

    code = "funds_too_low"
    remedy = "Send the missing amount to the deployer's address, or wait for a lower fee."

    def __init__(self, account: str, balance: int, needed: int) -> None:
        super().__init__(
            f"{account} holds {balance} wei, the deployment may need {needed}; "
            f"{needed - balance} are missing",
            account=account,
        )
        self.account, self.balance, self.needed = account, balance, needed


class NotAToken(DeployRefused):
    """The address that should be the fee token's is no ERC-20 contract."""

    code = "not_a_token"
    remedy = "Give the address of a plain ERC-20 on this chain: --token or VERILLM_TOKEN."

    def __init__(self, address: str, fact: str) -> None:
        super().__init__(f"{address} is no token: {fact}", address=address)
        self.address, self.fact = address, fact


class FeatureMissing(DeployRefused):
    """The chain, or its RPC server, lacks what the contracts or this command need."""

    code = "feature_missing"
    remedy = "Deploy to a chain at Prague or later, through an RPC server that simulates calls."

    def __init__(self, feature: str, fact: str) -> None:
        super().__init__(f"{feature}: {fact}", feature=feature)
        self.feature, self.fact = feature, fact


class AlreadyDeployed(DeployRefused):
    """The addresses file names a deployment already."""

    code = "already_deployed"
    remedy = "Use it; or name another file (--deployment) to deploy once more."


class PlanChanged(DeployRefused):
    """The state file holds a begun deployment of another plan."""

    code = "plan_changed"
    remedy = "Go on with the terms, key and chain it was begun with, or move the state file away."


class NonceTaken(DeployRefused):
    """Another transaction of the key took a planned nonce, so the planned addresses are lost."""

    code = "nonce_taken"
    remedy = "Move the state file away and deploy anew, with a key that sends nothing else."


class DeploymentDiffers(DeployRefused):
    """What stands on the chain is not what was planned, or not what an addresses file names."""

    code = "deployment_differs"
    remedy = "Do not use it: deploy anew, or get the addresses file from whoever deployed."

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__("; ".join(differences), differences=differences)
        self.differences = differences
