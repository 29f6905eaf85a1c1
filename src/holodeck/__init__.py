"""HoloDeck: the agent engine and gateway that people trust with their MCP tools."""

__version__ = "0.1.0"

__all__ = ["__version__"]
