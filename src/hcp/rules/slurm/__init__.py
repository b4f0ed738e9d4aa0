"""What a Slurm script asks for, and what its job survives."""
