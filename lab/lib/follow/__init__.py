"""Follows Python functions of upstream's sources without importing them: what they build is known, or unknown."""
