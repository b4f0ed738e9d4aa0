"""Fixes: tried on the launch, offered with their cause, and written into its file as a patch."""
