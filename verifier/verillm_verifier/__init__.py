"""The auditor: everything that judges from public data."""
