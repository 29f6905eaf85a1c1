"""The `holodeck mcp` commands: MCP servers from the shell, without a model and without an API key."""
