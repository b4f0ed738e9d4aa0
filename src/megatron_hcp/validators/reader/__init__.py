"""Reads upstream's Python into the validators' intermediate program. Only loaded for a checkout and to build tables."""
