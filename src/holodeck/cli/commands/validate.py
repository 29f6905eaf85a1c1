"""`holodeck validate`: check an agent or gateway file and show what it would start, dial or call.

Nothing is started or dialled, so of lint it shows the findings in entries of servers, not those in their tools.
Summaries show references to variables, never their values. A folder from elsewhere can hold anything, so its files
are read in a child with limits: none can hang the command, use up the memory or crash it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from holodeck.cli.default_file import resolve_file
from holodeck.cli.main import json_option
from holodeck.cli.output.config_problems import (
    count_problems,
    findings_data,
    has_error,
    print_findings,
    print_problems,
    problem_data,
)
from holodeck.config.actions import NO_KEY, Actions, describe_endpoint, describe_key, describe_not_covered, list_actions
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, LoadedAgent, LoadedTool
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.lib.system.limited_child import LimitExceededError, run_limited
from holodeck.models.llm import LLM
from holodeck.models.tool import AgentTool, FunctionTool, MCPTool
from holodeck.runtime import lint_servers, read_agent_or_gateway
from holodeck.tools.mcp.launch.plan import describe_launch, plan_launch
from holodeck.trust import check_trust, open_trust_store

if TYPE_CHECKING:
    from holodeck.config.gateway_loader import LoadedGateway
    from holodeck.tools.mcp.lint.finding import Finding

_EPILOG = """\b
Examples:
  holodeck validate                  check ./agent.yaml, or else ./gateway.yaml
  holodeck validate team/agent.yaml
  holodeck validate --strict --json  for CI: warnings fail, output for programs"""

_DEFAULT_FILES = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)
_COLUMNS = ("Tool", "Via", "Starts, dials or calls", "Variables")

_REFERENCE = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_FOLDERS = frozenset({"workspaceFolder", "userHome"})
# The largest files of projects take a second or two, and some hundred megabytes.
_MAX_CPU_SECONDS = 30
_MAX_MEMORY = 1024 * MIB
_LIMIT_FIX = "Look for files in its folder that do not belong there."


@click.command("validate", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@json_option()
@click.option("--strict", is_flag=True, help="Treat warnings as errors, and errors of lint as well.")
def command(file: str | None, as_json: bool, strict: bool) -> int:
    """Check an agent or gateway FILE (default: agent.yaml, or else gateway.yaml) and show what it would start or dial.

    Exit codes: 0 the file is valid, 2 it is not.
    """
    path = Path(file or DEFAULT_AGENT_FILE)
    try:
        path = resolve_file(file, _DEFAULT_FILES)
        checked = run_limited(lambda: _check_file(path), cpu_seconds=_MAX_CPU_SECONDS, memory_bytes=_MAX_MEMORY)
    except ConfigError as error:
        checked = _Checked(problems=error.problems)
    except LimitExceededError as error:
        problem = Problem(message=f"the file cannot be checked: {error}", file=str(path), fix=_LIMIT_FIX)
        checked = _Checked(problems=(problem,))
    problems, findings = checked.problems, checked.findings
    is_valid = checked.summary is not None and not (strict and (problems or has_error(findings)))
    if as_json:
        result = {
            "valid": is_valid,
            "file": str(path),
            **(checked.summary or {}),
            "problems": [problem_data(problem) for problem in problems],
            "findings": findings_data(findings),
        }
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print_validation(str(path), checked, is_valid=is_valid)
    return 0 if is_valid else 2


@record
class _Checked:
    """The result of reading a file."""

    problems: tuple[Problem, ...]
    """Warnings, if there is a summary."""
    findings: tuple[Finding, ...] = ()
    summary: dict[str, Any] | None = None
    """What the file says. None: it is not valid."""
    is_trusted: bool = False
    """Whether the user has agreed to what it would do."""


def _check_file(path: Path) -> _Checked:
    """Read a file. Raises `ConfigError`."""
    loaded = read_agent_or_gateway(path)
    summary = agent_summary(loaded) if isinstance(loaded, LoadedAgent) else gateway_summary(loaded)
    actions = list_actions(loaded)
    summary |= {"trust_digest": actions.digest, "trust_not_covered": actions.not_covered}
    return _Checked(
        problems=loaded.warnings,
        findings=tuple(_find_entry_findings(loaded)),
        summary=summary,
        is_trusted=_is_trusted(path, actions),
    )


def _is_trusted(path: Path, actions: Actions) -> bool:
    """Return whether the file may be used without a question. False without a store."""
    try:
        return check_trust(path, actions, environ=os.environ, store=open_trust_store()).state == "trusted"
    except ConfigError:
        return False


def _find_entry_findings(loaded: LoadedAgent | LoadedGateway) -> list[Finding]:
    """Return the findings in the entries of a file and of the agents that it serves; not in the user's settings."""
    lists = [loaded.tools] if isinstance(loaded, LoadedAgent) else [loaded.servers]
    lists += [] if isinstance(loaded, LoadedAgent) else [agent.tools for agent in loaded.agents.values()]
    found: list[Finding] = []
    for tools in lists:
        entries = [item for item in tools if not item.is_personal]
        found += lint_servers(entries, {}, [item.tool.name for item in tools if isinstance(item.tool, MCPTool)])
    # Agents of a gateway may be served twice. Errors come first.
    return sorted(dict.fromkeys(found), key=lambda finding: finding.severity)


def _print_validation(path: str, checked: _Checked, *, is_valid: bool) -> None:
    if checked.summary:
        _print_summary(checked.summary, is_trusted=checked.is_trusted)
    print_findings(checked.findings, err=True)
    if checked.problems:
        print_problems(checked.problems)
    if is_valid:
        remark = f" ({count_problems(checked.problems)})" if checked.problems else ""
        click.secho(f"{escape_unprintable(path)} is valid{remark}.", fg="green")
    elif Path(path).is_file():
        click.secho(f"{escape_unprintable(path)} is not valid.", fg="red", err=True)


def _print_summary(summary_data: dict[str, Any], *, is_trusted: bool) -> None:
    from rich.console import Console

    from holodeck.cli.output.tables import show_table

    console = Console(highlight=False, markup=False, emoji=False)
    lines = (
        summary_headings(summary_data)
        if summary_data["tools"]
        else [*summary_headings(summary_data), ("Tools", "none")]
    )
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        console.print(escape_unprintable(f"{label:<{width}}  {text}"))
    if summary_data["tools"]:
        show_table(console, _COLUMNS, [_row(tool) for tool in summary_data["tools"]])
    if not is_trusted:
        # On a line of its own, whole, to be copied.
        console.print(f"Trust digest: {summary_data['trust_digest']}", soft_wrap=True)
    if not_covered := summary_data["trust_not_covered"]:
        console.print(describe_not_covered(not_covered), style="yellow", soft_wrap=True)
    console.print()


def _row(tool: dict[str, Any]) -> tuple[str, ...]:
    target = tool.get("starts") or tool.get("dials") or tool.get("calls") or tool.get("asks")
    via = tool.get("transport", tool["type"]) + ("" if tool.get("enabled", True) else " (disabled)")
    via += ", describes itself" if tool.get("describes_itself") else ""
    via += ", sandboxed" if tool.get("sandboxed") else ""
    via += ", callers' own credentials" if tool.get("caller_authorization") else ""
    name = tool["name"] + (f" (agent {tool['agent']})" if "agent" in tool else "")
    return (name, via, str(target), ", ".join(tool["variables"]) or "-")


def agent_summary(loaded: LoadedAgent) -> dict[str, Any]:
    """Return the agent, its model and its tools as plain data, without the value of any variable."""
    agent, written = loaded.agent, loaded.written
    model = written.get("model")
    return {
        "agent": {
            "name": _as_written(agent.name, written.get("name")),
            "description": _as_written(agent.description, written.get("description")),
            "author": _as_written(agent.author, written.get("author")),
            "max_turns": agent.max_turns,
        },
        "model": _model_summary(agent.model, model),
        "tools": [_tool_summary(item) for item in loaded.tools],
        "test_cases": len(agent.test_cases),
    }


def _model_summary(model: LLM, entry: object) -> dict[str, Any]:
    """Return a model, its deployments and its stand-ins, with their endpoints and where their keys come from.

    `entry` is the model as written.
    """
    written = entry if isinstance(entry, dict) else {}
    summary: dict[str, Any] = {
        "provider": model.provider.value,
        "name": _as_written(model.name, written.get("name")),
    }
    if model.deployments:
        listed = zip(model.list_deployments(), written.get("deployments") or (), strict=False)
        summary["deployments"] = [
            {
                "name": _as_written(each.name, own.get("name", written.get("name"))),
                **_describe_access(each, {**written, **own}),
            }
            for each, own in listed
        ]
    elif model.spec.is_service:
        summary |= _describe_access(model, written)
    stand_ins = zip(model.stand_ins.values(), written.get("fallback") or (), strict=False)
    if fallback := [_model_summary(each, own) for each, own in stand_ins]:
        summary["fallback"] = fallback
    return summary


def _describe_access(model: LLM, written: Mapping[str, Any]) -> dict[str, str]:
    return {"endpoint": describe_endpoint(model, written), "key": describe_key(model, written)}


def gateway_summary(loaded: LoadedGateway) -> dict[str, Any]:
    """Return what a gateway serves, its callers, its storage, its tools and those of its agents as plain data."""
    gateway = loaded.gateway
    names = [*loaded.models, *(f"{name} (agent)" for name in loaded.agents)]
    issuers = [f"tokens of {gateway.jwt.issuer}"] if gateway.jwt else []
    entries = loaded.written.get("models")
    written = {entry["name"]: entry.get("model") for entry in entries} if isinstance(entries, list) else {}
    storage = re.sub(r"//.*@", "//***@", gateway.storage.url.partition("?")[0])
    return {
        "gateway": {
            "serves": names,
            "listens": f"{gateway.listen.host}:{gateway.listen.port}",
            "callers": [key.name for key in gateway.keys] + issuers,
            "storage": storage,
        },
        "models": [
            {"served_as": served.name, **_model_summary(served.model, written.get(served.name))}
            for served in gateway.models
        ]
        + [
            {"served_as": name, **_model_summary(agent.agent.model, agent.written.get("model"))}
            for name, agent in loaded.agents.items()
        ],
        "tools": [
            *(_tool_summary(item) for item in loaded.servers),
            *({**_tool_summary(item), "agent": name} for name, agent in loaded.agents.items() for item in agent.tools),
        ],
    }


def _as_written(value: str | None, written: object) -> str | None:
    # The reference to a variable instead of its value.
    return written if isinstance(written, str) and _REFERENCE.search(written) else value


def summary_headings(summary_data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the labelled lines above the table of tools."""
    if "gateway" in summary_data:
        gateway = summary_data["gateway"]
        callers = ", ".join(gateway["callers"]) or "nobody but this machine"
        return [
            ("Serves", ", ".join(gateway["serves"])),
            ("Listens", gateway["listens"]),
            ("Callers", callers),
            ("Storage", gateway["storage"]),
            *(line for model in summary_data["models"] for line in _list_model_lines(model, f"{model['served_as']}: ")),
        ]
    agent, model = summary_data["agent"], summary_data["model"]
    about = f" - {agent['description']}" if agent["description"] else ""
    return [
        ("Agent", f"{agent['name']}{about}"),
        *([("Author", agent["author"])] if agent["author"] else []),
        *_list_model_lines(model),
    ]


def _list_model_lines(model: dict[str, Any], prefix: str = "", label: str = "Model") -> Iterator[tuple[str, str]]:
    """Yield the line of a model, then those of its deployments and of its stand-ins."""
    name = f"{prefix}{model['provider']}{' ' + model['name'] if model['name'] else ''}"
    yield label, f"{name} {_access_line(model)}" if "endpoint" in model else name
    for each in model.get("deployments", ()):
        name = f"{each['name']} " if each["name"] != model["name"] else ""
        yield "Deployment", f"{name}{_access_line(each)}"
    for each in model.get("fallback", ()):
        yield from _list_model_lines(each, label="Stand-in")


def _access_line(access: dict[str, Any]) -> str:
    key = "without a key" if access["key"] == NO_KEY else f"with the key of {access['key']}"
    return f"at {access['endpoint']}, {key}"


def _tool_summary(item: LoadedTool) -> dict[str, Any]:
    tool = item.tool
    common: dict[str, Any] = {"name": tool.name, "type": tool.type, "file": item.file}
    if isinstance(tool, AgentTool):
        return {**common, "asks": tool.file or tool.agent, "variables": []}
    if isinstance(tool, FunctionTool):
        return {**common, "calls": f"{item.written.get('file')}:{tool.function}", "variables": []}
    transport = {"transport": tool.transport.value, "enabled": tool.enabled}
    target = {"starts": _launch_command(tool, item)} if tool.transport == "stdio" else {"dials": _masked_url(item)}
    authorization = {"caller_authorization": True} if tool.caller_authorization else {}
    # Not a warning, which each run would repeat: most descriptions of servers will do.
    flags = {"describes_itself": tool.description is None, "sandboxed": tool.sandbox}
    shown = {name: True for name, value in flags.items() if value}
    return {**common, **transport, **target, **shown, **authorization, "variables": _variable_names(tool, item)}


def _launch_command(tool: MCPTool, item: LoadedTool) -> str:
    # As written in the file: arguments that come from variables stay references.
    args = item.written.get("args")
    written = [str(arg) for arg in args] if isinstance(args, list) else tool.args
    server = str(item.written.get("server") or tool.server)
    return describe_launch(plan_launch(tool.model_copy(update={"args": written, "server": server})))


def _masked_url(item: LoadedTool) -> str:
    url = str(item.written.get("url") or "")
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(from a variable)"
    query = "&".join(re.sub(r"=(?!\$\{).*", "=***", pair) for pair in parts.query.split("&")) if parts.query else ""
    return urlunsplit(parts._replace(query=query))


def _variable_names(tool: MCPTool, item: LoadedTool) -> list[str]:
    """Return the names of the variables that a tool reads or passes on."""
    names = {*tool.env, *(name for name in _find_references(item.written) if name not in _FOLDERS)}
    return sorted(names)


def _find_references(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _REFERENCE.findall(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _find_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_references(item)
