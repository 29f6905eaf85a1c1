"""Public fakes: an MCP server that misbehaves as told, and stand-ins for the commands that start servers."""

from holodeck.testing.command import Transport
from holodeck.testing.faults import Era, Fault
from holodeck.testing.journal import ABANDONED, Journal, Received
from holodeck.testing.processes import read_pids
from holodeck.testing.server import FaultyMCPServer
from holodeck.testing.stand_in import stand_in, stand_in_calls

__all__ = [
    "ABANDONED",
    "Era",
    "Fault",
    "FaultyMCPServer",
    "Journal",
    "Received",
    "Transport",
    "read_pids",
    "stand_in",
    "stand_in_calls",
]
