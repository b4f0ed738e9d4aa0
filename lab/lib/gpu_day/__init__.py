"""The parts of a day with one GPU."""
