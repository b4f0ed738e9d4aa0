"""Known faults of upstream by version: tables of rows, each of which is a rule."""
