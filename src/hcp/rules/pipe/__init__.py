"""How the layers fall on the stages of a pipeline."""
