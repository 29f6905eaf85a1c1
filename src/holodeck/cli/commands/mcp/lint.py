"""`holodeck mcp lint`: looks for prompt injection in the tools of servers, and in their entries in the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import ServerResult, query_all, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, failure_data, select_servers, start_timeout_option, target_options
from holodeck.cli.output.config_problems import count_findings, findings_data, has_error, print_findings
from holodeck.cli.output.tables import count_of
from holodeck.lib.escape import escape_json, escape_unprintable
from holodeck.runtime import lint_servers

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding

FINDING_EXIT_CODE = 3
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
    """Look for prompt injection in all servers, or in SERVER: instructions to the model, hidden characters, secrets.

    A finding is an error if no honest server needs what was found, and otherwise a warning.
    """
    loaded = target.load_servers()
    chosen = [with_timeout(item, timeout) for item in select_servers(loaded, server, target)]
    work = query_all(
        chosen, lambda plugin: plugin.list_tools(), on_result=lambda _: None, verb="asking", is_locked=False
    )
    results = run_with_logging(work, verbose=target.verbose)
    listed = {result.name: result.answer or [] for result in results}
    findings = lint_servers(chosen, listed, [item.tool.name for item in loaded.tools])
    refused = loaded.refused if server is None else {}
    if target.as_json:
        invalid = [{"name": name, "error": {"message": found[0].message}} for name, found in refused.items()]
        servers = escape_json([*map(_server_data, results), *invalid])
        click.echo(json.dumps({"findings": findings_data(findings), "servers": servers}, indent=2))
    else:
        print_findings(findings)
        _print_totals(findings, results)
        reasons = {result.name: reason_text(result.error) for result in results if result.error is not None}
        reasons |= {name: found[0].message for name, found in refused.items()}
        for name, reason in reasons.items():
            click.echo(escape_unprintable(f"{name}: {reason}"), err=True)
    if refused or any(result.error is not None for result in results):
        return 1
    return FINDING_EXIT_CODE if has_error(findings) else 0


def _server_data(result: ServerResult[list[MCPToolInfo]]) -> dict[str, Any]:
    if result.error is not None:
        return {"name": result.name, **failure_data(result.error)}
    return {"name": result.name, "tools": len(result.answer or [])}


def _print_totals(findings: Sequence[Finding], results: Sequence[ServerResult[list[MCPToolInfo]]]) -> None:
    tools = sum(len(result.answer or []) for result in results)
    servers = sum(result.error is None for result in results)
    click.echo(f"{count_findings(findings)} in {count_of(tools, 'tool')} of {count_of(servers, 'server')}.")
