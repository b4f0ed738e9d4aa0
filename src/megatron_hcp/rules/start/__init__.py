"""Upstream's own refusals at start-up: a rule for each function that has them, a guard for each assert and raise."""
