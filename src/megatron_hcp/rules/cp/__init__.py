"""Flat context parallelism: lengths, heads, communication types, backends, attention features, training modes."""
