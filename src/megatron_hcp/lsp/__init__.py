"""`hcp lsp`: findings, explanations, fixes and keys in an editor."""
