"""The ranks of a failure: where a line was written, how many wrote it, and whose process ended first."""
