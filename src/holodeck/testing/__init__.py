"""Public fakes for tests: a scripted model, an MCP server with a chosen fault, stand-ins for npx, uvx and docker."""

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
    "Received",
    "ScriptedModel",
    "Transport",
    "call",
    "call_raw",
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
