"""What failures look like in a log, one row each."""
