"""What a Slurm script requests, and what its job survives."""
