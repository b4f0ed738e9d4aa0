"""What meets the outside: errors, files and bounded reading, the shape of data, secrets, signals, text to be printed."""
