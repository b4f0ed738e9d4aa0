"""The rules, by the prefix of their ids: one decorated function, or one row, each."""
