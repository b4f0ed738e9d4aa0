"""`hcp pack`: its commands, one module each."""
