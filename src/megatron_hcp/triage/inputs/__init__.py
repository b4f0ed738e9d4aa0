"""What triage reads: files, folders, pipes, and compressed logs."""
