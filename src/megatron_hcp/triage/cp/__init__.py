"""What logs say about context parallelism."""
