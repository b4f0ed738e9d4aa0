"""`hcp mcp`: the read-only commands as Model Context Protocol tools."""
