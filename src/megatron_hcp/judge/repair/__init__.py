"""Fixes: tried on the launch, attached to the finding that they resolve, and written into its file as a patch."""
