"""Known upstream bugs by version: tables of rows, each of which is a rule."""
