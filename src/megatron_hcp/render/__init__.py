"""Renders jobs for Slurm and Kubernetes from launches and sites."""
