"""Multi-token prediction."""
