"""Tool schemas as each provider accepts them, and the way back for the arguments."""

from holodeck.providers.schemas.adapt import AdaptedTool, adapt_tool
from holodeck.providers.schemas.dialect import SchemaRulesName

__all__ = ["AdaptedTool", "SchemaRulesName", "adapt_tool"]
