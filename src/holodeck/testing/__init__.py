"""Public fakes: a model that follows a script, an MCP server that misbehaves as told, stand-ins for commands."""

from holodeck.testing.command import Transport
from holodeck.testing.faults import Era, Fault
from holodeck.testing.journal import ABANDONED, Journal, Received
from holodeck.testing.processes import read_pids
from holodeck.testing.script import call, call_raw, fail, finish, say, spend, think, wait
from holodeck.testing.scripted import ScriptedModel
from holodeck.testing.server import FaultyMCPServer
from holodeck.testing.stand_in import stand_in, stand_in_calls

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
