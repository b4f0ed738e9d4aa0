"""Our plans in a job that runs: one module per framework, which a user names and nothing more."""
