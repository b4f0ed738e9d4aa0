"""Facts that follow from other facts of a launch."""
