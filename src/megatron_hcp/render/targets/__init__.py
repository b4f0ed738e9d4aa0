"""Targets of a job besides a script for sbatch."""
