"""Rows on what the launch asks of context parallelism: attention, its levels, dynamic CP, packing, parallel sizes."""
