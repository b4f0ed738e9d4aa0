"""Draws pictures from plain numbers."""
