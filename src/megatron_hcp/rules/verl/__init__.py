"""Rules about what verl requires at start-up."""
