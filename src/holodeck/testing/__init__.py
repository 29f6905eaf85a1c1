"""Public fakes for tests: a scripted model, an MCP server with a chosen fault, stand-ins for npx, uvx and docker, and
cassettes, which replay what was recorded.

The names are imported on first use: pytest imports this package for its plugin, also where no test uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holodeck.testing.cassettes import OpenedCassette, cassette
    from holodeck.testing.mcp.commands import Transport, stand_in, stand_in_calls
    from holodeck.testing.mcp.faults import Era, Fault
    from holodeck.testing.mcp.journal import ABANDONED, Journal, Received
    from holodeck.testing.mcp.processes import read_pids
    from holodeck.testing.mcp.server import FaultyMCPServer
    from holodeck.testing.model.script import call, call_raw, fail, finish, say, spend, think, wait
    from holodeck.testing.model.scripted import ScriptedModel

__all__ = [
    "ABANDONED",
    "Era",
    "Fault",
    "FaultyMCPServer",
    "Journal",
    "OpenedCassette",
    "Received",
    "ScriptedModel",
    "Transport",
    "call",
    "call_raw",
    "cassette",
    "fail",
    "finish",
    "read_pids",
    "say",
    "spend",
    "stand_in",
    "stand_in_calls",
    "think",
    "wait",
]

_NAMES_OF_MODULES = {
    "cassettes": ("OpenedCassette", "cassette"),
    "mcp.commands": ("Transport", "stand_in", "stand_in_calls"),
    "mcp.faults": ("Era", "Fault"),
    "mcp.journal": ("ABANDONED", "Journal", "Received"),
    "mcp.processes": ("read_pids",),
    "mcp.server": ("FaultyMCPServer",),
    "model.script": ("call", "call_raw", "fail", "finish", "say", "spend", "think", "wait"),
    "model.scripted": ("ScriptedModel",),
}
_MODULES = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'holodeck.testing' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"holodeck.testing.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
