"""How a training goes, by what it prints: its steps, and what else shows that it runs; metrics that are no numbers."""
