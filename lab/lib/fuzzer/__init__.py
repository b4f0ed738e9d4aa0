"""What lab/fuzz.py is made of: makers of inputs, the watch over each, and what is looked for."""
