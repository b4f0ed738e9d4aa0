"""The commands of `hcp dcp`, one module each."""
