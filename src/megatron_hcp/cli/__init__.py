"""The click commands: they parse, call and print. No arithmetic and no rules here."""
