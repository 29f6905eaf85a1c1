"""Tool schemas as each provider accepts them, and the way back for the arguments."""

from holodeck.providers.tool_schemas.adapt import AdaptedTool, adapt_tool
from holodeck.providers.tool_schemas.rules import SchemaRulesName

__all__ = ["AdaptedTool", "SchemaRulesName", "adapt_tool"]
