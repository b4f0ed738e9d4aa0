"""Launches in words: command lines, Bridge and Hydra overrides."""
