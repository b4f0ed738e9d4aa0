"""Fixes that upstream made after a launch's releases: which of them touch what the launch turns on."""
