"""Peak memory of a training step on each pipeline stage, term by term."""
