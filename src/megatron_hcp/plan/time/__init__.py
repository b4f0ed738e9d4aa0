"""How long a step of a layout takes: layer by layer, group by group, and what of the communication is hidden."""
