"""What an agent file would start, dial and send, in the form that may be shown: secrets are names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from holodeck.config.agent_loader import LoadedAgent, LoadedTool
from holodeck.models.tool import FunctionTool, MCPTool
from holodeck.tools.mcp import launch

if TYPE_CHECKING:
    from holodeck.config.gateway_loader import LoadedGateway

_REFERENCE = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_FOLDERS = frozenset({"workspaceFolder", "userHome"})


def agent_summary(loaded: LoadedAgent) -> dict[str, Any]:
    """The agent, its model and its tools as plain data, without a single value of a variable."""
    agent, written = loaded.agent, loaded.written
    model = written.get("model")
    return {
        "agent": {
            "name": _as_written(agent.name, written.get("name")),
            "description": _as_written(agent.description, written.get("description")),
            "max_turns": agent.max_turns,
        },
        "model": {
            "provider": agent.model.provider.value,
            "name": _as_written(agent.model.name, model.get("name") if isinstance(model, dict) else None),
        },
        "tools": [_tool_summary(item) for item in loaded.tools],
        "test_cases": len(agent.test_cases),
    }


def gateway_summary(loaded: LoadedGateway) -> dict[str, Any]:
    """The same for a gateway: what it serves, to whom, and what is behind it."""
    gateway = loaded.gateway
    names = [*loaded.models, *(f"{name} (agent)" for name in loaded.agents)]
    issuers = [f"tokens of {gateway.jwt.issuer}"] if gateway.jwt else []
    storage = re.sub(r"//.*@", "//***@", gateway.storage.url.partition("?")[0])
    return {
        "gateway": {
            "serves": names,
            "listens": f"{gateway.listen.host}:{gateway.listen.port}",
            "callers": [key.name for key in gateway.keys] + issuers,
            "storage": storage,
        },
        "tools": [_tool_summary(item) for item in loaded.servers],
    }


def _as_written(value: str | None, written: object) -> str | None:
    """A value, or the reference that it came from."""
    return written if isinstance(written, str) and _REFERENCE.search(written) else value


def summary_headings(summary_data: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines above the table of tools."""
    if "gateway" in summary_data:
        gateway = summary_data["gateway"]
        callers = ", ".join(gateway["callers"]) or "nobody but this machine"
        return [
            ("Serves", ", ".join(gateway["serves"])),
            ("Listens", gateway["listens"]),
            ("Callers", callers),
            ("Storage", gateway["storage"]),
        ]
    agent, model = summary_data["agent"], summary_data["model"]
    about = f" - {agent['description']}" if agent["description"] else ""
    return [
        ("Agent", f"{agent['name']}{about}"),
        ("Model", f"{model['provider']}{' ' + model['name'] if model['name'] else ''}"),
    ]


def _tool_summary(item: LoadedTool) -> dict[str, Any]:
    tool = item.tool
    known: dict[str, Any] = {"name": tool.name, "type": tool.type, "file": item.file}
    if isinstance(tool, FunctionTool):
        return {**known, "calls": f"{item.written.get('file')}:{tool.function}", "variables": []}
    transport = {"transport": tool.transport.value, "enabled": tool.enabled}
    target = {"starts": _launch_command(tool, item)} if tool.transport == "stdio" else {"dials": _masked_url(item)}
    brings = {"caller_authorization": True} if tool.caller_authorization else {}
    return {**known, **transport, **target, **brings, "variables": _variable_names(tool, item)}


def _launch_command(tool: MCPTool, item: LoadedTool) -> str:
    """The command line as written: arguments that come from variables stay names."""
    args = item.written.get("args")
    written = [str(arg) for arg in args] if isinstance(args, list) else tool.args
    server = str(item.written.get("server") or tool.server)
    return launch.describe_launch(launch.plan_launch(tool.model_copy(update={"args": written, "server": server})))


def _masked_url(item: LoadedTool) -> str:
    url = str(item.written.get("url") or "")
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(from a variable)"
    query = "&".join(re.sub(r"=(?!\$\{).*", "=***", pair) for pair in parts.query.split("&")) if parts.query else ""
    return urlunsplit(parts._replace(query=query))


def _variable_names(tool: MCPTool, item: LoadedTool) -> list[str]:
    """The names of variables that this tool reads or passes on."""
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
