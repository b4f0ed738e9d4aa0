"""Keys and options that upstream does not have, or not where the launch writes them."""
