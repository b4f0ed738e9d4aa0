"""`hcp dryrun`."""
