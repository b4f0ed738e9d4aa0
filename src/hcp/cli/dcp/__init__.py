"""`hcp dcp`: its commands, one module each."""
