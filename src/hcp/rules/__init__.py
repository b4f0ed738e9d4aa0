"""The rules, small files by topic, and the engine that runs them over a `Launch`."""
