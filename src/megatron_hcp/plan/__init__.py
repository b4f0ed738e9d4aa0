"""The planner: what a layout of a model on a cluster holds, takes and breaks, and which layouts are best."""
