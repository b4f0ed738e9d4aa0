"""How the ranks fit the layout, and where groups lie."""
