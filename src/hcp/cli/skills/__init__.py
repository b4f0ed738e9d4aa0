"""`hcp skills`: its commands."""
