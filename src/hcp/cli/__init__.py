"""The click commands: parse, call, print. No arithmetic, no rules."""
