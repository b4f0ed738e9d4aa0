"""The frameworks: one module or folder each, with its keys, defaults, readers and what follows from its settings."""
