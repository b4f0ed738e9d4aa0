"""Environment variables: those that must agree with the configuration, and those left over from debugging."""
