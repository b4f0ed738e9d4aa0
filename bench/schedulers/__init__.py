"""What bench/dcp.py compares, and on what."""
