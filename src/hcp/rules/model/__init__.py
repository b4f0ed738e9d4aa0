"""Models whose layers are not plain attention."""
