"""Cassettes: the traffic of an agent with its model and its MCP servers, recorded into a file and replayed from it."""
