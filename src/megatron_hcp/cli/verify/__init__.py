"""`hcp verify`."""
