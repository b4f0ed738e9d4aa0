"""Launches in shell and sbatch scripts: which command trains, how it is started, with which words."""
