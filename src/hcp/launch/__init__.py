"""Reads launches in every dialect into one `Launch`: facts with their origin."""
