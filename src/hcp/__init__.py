"""Executable knowledge about context parallelism on the Megatron stack."""

__version__ = "0.1.0"
