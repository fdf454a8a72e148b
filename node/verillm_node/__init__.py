"""The operator's daemon: everything that runs and talks."""
