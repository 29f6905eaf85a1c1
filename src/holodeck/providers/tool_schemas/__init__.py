"""Adapts tool schemas to what each provider accepts, and restores the arguments of calls to the original schema."""

from holodeck.providers.tool_schemas.adapt import AdaptedTool, adapt_tool
from holodeck.providers.tool_schemas.rules import SchemaRulesName

__all__ = ["AdaptedTool", "SchemaRulesName", "adapt_tool"]
