"""What `hcp check` does for a whole repository: folders, accepted findings, fixes that are written."""
