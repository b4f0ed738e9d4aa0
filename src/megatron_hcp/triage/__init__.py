"""Reads the logs of a job: the first failure, its cause, and whether context parallelism was active."""
