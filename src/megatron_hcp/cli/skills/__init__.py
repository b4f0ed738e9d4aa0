"""The commands of `hcp skills`."""
