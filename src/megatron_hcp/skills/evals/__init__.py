"""Evaluations of a skill: its tasks, and code that grades an agent's answers."""
