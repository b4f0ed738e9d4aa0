"""Skill cards, source anchors, and the runner of verification steps."""
