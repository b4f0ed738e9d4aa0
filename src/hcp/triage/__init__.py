"""Reads what a job left: the first failure, its cause, and whether context parallelism was on."""
