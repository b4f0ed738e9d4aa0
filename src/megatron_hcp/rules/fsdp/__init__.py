"""Sharded parameters."""
