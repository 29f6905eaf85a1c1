"""Plans the process that an MCP tool starts, and refuses arguments that would run other code than the named server."""
