"""Plans the process that an MCP tool starts, and refuses arguments that would run other code than the named server."""

from holodeck.tools.mcp.launch.denylist import variable_danger
from holodeck.tools.mcp.launch.plan import (
    CONFIG_VARIABLE,
    Launch,
    describe_launch,
    find_refusals,
    plan_launch,
    variable_names,
)
from holodeck.tools.mcp.launch.refusal import Refusal

__all__ = [
    "CONFIG_VARIABLE",
    "Launch",
    "Refusal",
    "describe_launch",
    "find_refusals",
    "plan_launch",
    "variable_danger",
    "variable_names",
]
