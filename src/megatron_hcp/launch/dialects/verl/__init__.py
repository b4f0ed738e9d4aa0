"""verl, and rLLM on it."""
