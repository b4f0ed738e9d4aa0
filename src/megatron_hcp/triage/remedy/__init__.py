"""What to do about a failure: what has to change, or that it may pass."""
