"""Supervises a job from the inside, once per task: checks before training, signals, the end and its verdict."""
