"""What programs raise: tracebacks and where they end, whether they were survived, and texts broken over lines."""
