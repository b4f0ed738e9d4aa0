"""What decides the verdict beyond the findings: settings that are hidden, and values that are presumed."""
