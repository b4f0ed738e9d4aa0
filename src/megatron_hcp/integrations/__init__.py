"""Uses hcp's plans in a running job: one module per framework, which the user only has to name."""
