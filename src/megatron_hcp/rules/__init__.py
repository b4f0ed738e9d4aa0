"""The rules, by the prefix of their ids, and the engine that runs them over a `Launch`."""
