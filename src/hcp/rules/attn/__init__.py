"""The attention that is asked for."""
