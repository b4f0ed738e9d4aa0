"""What a model can do on given versions: asked of the rules, so that it cannot differ from `hcp check`."""
