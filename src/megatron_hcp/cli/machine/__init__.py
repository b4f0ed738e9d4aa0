"""The commands about this machine: what it has, and what works."""
