"""CP-Bench: what upstream publishes as run, and what its own start-up refuses, as cases for any tool."""
