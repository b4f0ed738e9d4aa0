"""What meets the outside: errors, bounded reading, whole writing, the shape of data, secrets, signals, shown text."""
