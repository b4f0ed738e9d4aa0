"""Pictures, from plain numbers."""
