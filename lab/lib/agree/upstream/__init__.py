"""Programs that run upstream's own start-up and parsers, each started in a process of its own, and what they share."""
