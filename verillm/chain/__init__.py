"""The chain: contract, events, a durable outbox, deployment, a private Anvil. All web3 is here."""
