"""Whether the ranks fit the layout, and where groups are placed."""
