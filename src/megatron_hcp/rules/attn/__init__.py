"""The requested attention backend and variant."""
