"""Models whose layers aren't plain attention."""
