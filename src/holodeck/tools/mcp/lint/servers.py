"""All rules over several servers: their entries, their tools, and their names beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.lint.entries import check_entry
from holodeck.tools.mcp.lint.finding import Finding
from holodeck.tools.mcp.lint.names import check_names
from holodeck.tools.mcp.lint.texts import check_tool

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo


@record
class LintSubject:
    """One server to be examined."""

    entry: MCPTool
    written_args: Sequence[str] = ()
    """The arguments of the entry with `${...}` instead of values."""
    tools: Sequence[MCPToolInfo] = ()
    """What the server lists. Empty when it was not asked."""


def check_servers(subjects: Sequence[LintSubject], servers: Sequence[str]) -> list[Finding]:
    """Return the findings in these servers, errors first. `servers`: the names of all servers of the file."""
    tools = {subject.entry.name: subject.tools for subject in subjects}
    found = [finding for subject in subjects for finding in check_entry(subject.entry, subject.written_args)]
    found += [finding for name, listed in tools.items() for tool in listed for finding in check_tool(name, tool)]
    found += [finding for finding in check_names(tools, servers) if finding.server in tools]
    return sorted(found, key=lambda finding: finding.severity)
