"""Launches in words: command lines and overrides."""
