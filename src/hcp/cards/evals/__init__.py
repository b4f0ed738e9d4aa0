"""Evaluations of a skill: its tasks, and graders by code for the answers of an agent."""
