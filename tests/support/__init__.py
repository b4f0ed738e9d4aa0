"""What several test folders share; pytest puts tests/ on the path, so that `from support import …` finds it."""
