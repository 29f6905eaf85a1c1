"""`holodeck mcp lint`: looks for poison in what servers say about their tools, and in their entries in the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import ServerResult, query_all, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, failure_data, select_servers, start_timeout_option, target_options
from holodeck.lib.escape import escape_json, escape_unprintable, one_line
from holodeck.models.tool import MCPTool

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding
    from holodeck.tools.mcp.plugin import MCPPlugin

FINDING_EXIT_CODE = 3
_MAX_SHOWN_CHARS = 200
_EPILOG = """\b
Examples:
  holodeck mcp lint                  all servers
  holodeck mcp lint files            one server: its names are not compared with the tools of the others
  holodeck mcp lint --command "npx -y @modelcontextprotocol/server-everything"

\b
Exit codes: 0 no error was found, 1 a server failed, 2 wrong configuration or usage, 3 an error was found."""


@click.command("lint", epilog=_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Look for poison in all servers, or in SERVER: hidden characters, instructions to the model, secrets.

    A finding is an error if no honest server needs what was found, and otherwise a warning.
    """
    loaded = target.load_servers()
    chosen = [with_timeout(item, timeout) for item in select_servers(loaded, server, target)]
    work = query_all(
        chosen, lambda plugin: plugin.list_tools(), on_result=lambda _: None, verb="asking", is_locked=False
    )
    results = run_with_logging(work, verbose=target.verbose)
    findings = _find_all(results, [item.tool.name for item in loaded.tools])
    refused = loaded.refused if server is None else {}
    if target.as_json:
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        data = {
            "findings": [asdict(finding) for finding in findings],
            "servers": [*map(_server_data, results), *invalid],
        }
        click.echo(json.dumps(escape_json(data), indent=2))
    else:
        _print_findings(findings, results)
        reasons = {result.name: reason_text(result.error) for result in results if result.error is not None}
        reasons |= {name: found[0].message for name, found in refused.items()}
        for name, reason in reasons.items():
            click.echo(escape_unprintable(f"{name}: {reason}"), err=True)
    if refused or any(result.error is not None for result in results):
        return 1
    return FINDING_EXIT_CODE if any(finding.severity == "error" for finding in findings) else 0


async def _list_tools(plugin: MCPPlugin) -> list[MCPToolInfo]:
    return await plugin.list_tools()


def _find_all(results: Sequence[ServerResult[list[MCPToolInfo]]], servers: Sequence[str]) -> list[Finding]:
    """Return the findings in the entries and in the tools of all servers that were asked, errors first."""
    from holodeck.tools.mcp.lint.entries import check_entry
    from holodeck.tools.mcp.lint.names import check_names
    from holodeck.tools.mcp.lint.texts import check_tool

    tools = {result.name: result.answer or [] for result in results}
    found: list[Finding] = []
    for result in results:
        tool, args = result.loaded.tool, result.loaded.written.get("args")
        if isinstance(tool, MCPTool):
            found += check_entry(tool, [str(arg) for arg in args] if isinstance(args, list) else [])
    found += [finding for name, listed in tools.items() for tool in listed for finding in check_tool(name, tool)]
    found += [finding for finding in check_names(tools, servers) if finding.server in tools]
    return sorted(found, key=lambda finding: finding.severity)


def _server_data(result: ServerResult[list[MCPToolInfo]]) -> dict[str, Any]:
    if result.error is not None:
        return {"name": result.name, **failure_data(result.error)}
    return {"name": result.name, "tools": len(result.answer or [])}


def _print_findings(findings: Sequence[Finding], results: Sequence[ServerResult[list[MCPToolInfo]]]) -> None:
    for finding in findings:
        parts = (finding.server, finding.tool, finding.place)
        subject = one_line(" ".join(part for part in parts if part is not None), _MAX_SHOWN_CHARS)
        click.secho(finding.severity, fg="red" if finding.severity == "error" else "yellow", nl=False)
        click.echo(f" {finding.code}: {subject}")
        click.echo(f"  {escape_unprintable(finding.message)}")
    errors = sum(finding.severity == "error" for finding in findings)
    tools = sum(len(result.answer or []) for result in results)
    click.echo(
        f"{_count(errors, 'error')} and {_count(len(findings) - errors, 'warning')} in {_count(tools, 'tool')} of "
        f"{_count(sum(result.error is None for result in results), 'server')}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
