"""Which collective a job stopped in: from its log lines, and from the dumps of the flight recorder."""
