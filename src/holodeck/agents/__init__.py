"""The Python API: agents, tools and MCP servers as objects. Programs import its names from `holodeck`."""
