"""Renders sbatch scripts from launches and site files."""
