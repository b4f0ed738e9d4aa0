"""Supervises a job from the inside, once per task: checks, signals, stalls, the verdict."""
