"""Packed sequences."""
