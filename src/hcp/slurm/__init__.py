"""Slurm scripts: rendering them, and reading the logs that their jobs leave."""
