"""How layers are assigned to pipeline stages."""
