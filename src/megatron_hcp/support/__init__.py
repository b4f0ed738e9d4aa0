"""What a model supports on given versions: answered by the rules, so that it can't differ from `hcp check`."""
