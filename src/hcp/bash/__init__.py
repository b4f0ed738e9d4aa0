"""Follows a bash script without running it: knows no Slurm and no Megatron."""
