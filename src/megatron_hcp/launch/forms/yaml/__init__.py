"""Launches in YAML."""
