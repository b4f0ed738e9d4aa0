"""The commands of `hcp pack`, one module each."""
