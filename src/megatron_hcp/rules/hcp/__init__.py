"""Hierarchical context parallelism: the sizes of its levels, and what its attention can do."""
