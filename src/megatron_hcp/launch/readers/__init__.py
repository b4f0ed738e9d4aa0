"""The launch in a target: its form and its framework are recognized, and the framework reads it."""
