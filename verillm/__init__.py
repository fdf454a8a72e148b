"""The protocol of VeriLLM and its SDK: what is hashed, signed, drawn and judged."""

__version__ = "0.1.0"
