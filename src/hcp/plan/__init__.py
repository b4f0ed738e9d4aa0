"""Layouts, their cost, and the pictures of them."""
