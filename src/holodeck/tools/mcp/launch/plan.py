"""Plans the process of an MCP tool, and lists what is refused in it.

Pure functions: nothing is looked up, opened or started, except by `find_mount_refusals` and `check_start`, which follow
symbolic links. A definition has a `command` exactly when its transport starts a process; the rules of `MCPTool` check
that.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holodeck.lib.errors import MCPConfigError
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.file_model import quote_value
from holodeck.models.tool import DEFAULT_ARGS, CommandType, MCPTool
from holodeck.tools.mcp.launch import docker, npx, uvx
from holodeck.tools.mcp.launch.denylist import variable_danger
from holodeck.tools.mcp.launch.refusal import LaunchFinding, Refusal

CONFIG_VARIABLE = "MCP_CONFIG"


@record
class Launch:
    """A process to start."""

    argv: tuple[str, ...]
    """The first element is the name of the command, to be looked up on PATH."""
    env: Mapping[str, Secret]
    """Variables to add to the child's environment."""
    cwd: str | None
    container: str | None = None
    """With `docker`, the name of the container to remove when the process has ended."""
    needs_npx_folder: bool = False
    """True when npx runs a package of the registry, so that it is started outside the folder of the agent."""


def plan_launch(tool: MCPTool, *, container: str | None = None) -> Launch:
    """Plan the launch of a server. `container` names its container, unless the arguments already do.

    Raises `MCPConfigError` for a tool that starts no process.
    """
    if tool.command is None:
        raise MCPConfigError("'command' is required for stdio transport")
    env = _build_env(tool)
    args = _build_args(tool)
    name = None
    if tool.command is CommandType.DOCKER:
        args, name = _add_docker_options(args, env, container)
    return Launch(
        argv=(str(tool.command), *args),
        env=MappingProxyType(env),
        cwd=tool.cwd,
        container=name,
        needs_npx_folder=tool.command is CommandType.NPX and not npx.check(args),
    )


def find_refusals(tool: MCPTool) -> list[Refusal]:
    """Return everything that could run other code than the server that this tool names.

    Empty for a tool that starts no process, for one with `allow_unsafe_args`, and for a program that the user allows
    by name: that is other code already.
    """
    if not isinstance(tool.command, CommandType) or tool.allow_unsafe_args:
        return []
    found = [finding.to_refusal(_key_of(tool, finding.index)) for finding in _find_dangers(tool)]
    advice = "Pass it to the container only, with '-e' in 'args'" if tool.command is CommandType.DOCKER else "Remove it"
    for name in tool.env:
        reason = variable_danger(name, tool.command)
        if reason:
            message = f"the variable {quote_value(name)} {reason}"
            found.append(LaunchFinding(index=None, message=message, advice=advice).to_refusal(("env", name)))
    return found


def find_mount_refusals(tool: MCPTool, folder: Path) -> list[Refusal]:
    """Return the mounts of a container that are not below `folder`, that of the file. Looks at the file system.

    Relative paths start from the folder in which the container is started. Empty for a tool with `allow_unsafe_args`.
    """
    if tool.command is not CommandType.DOCKER or tool.allow_unsafe_args:
        return []
    found = docker.check_mount_targets(_build_args(tool), folder, folder / (tool.cwd or ""))
    return [finding.to_refusal(_key_of(tool, finding.index)) for finding in found]


def check_start(tool: MCPTool, folder: Path) -> None:
    """Raise `MCPConfigError` for a mount that is refused: a link may lead elsewhere since the file was read."""
    for refusal in find_mount_refusals(tool, folder):
        raise MCPConfigError(f"{refusal.message}. {refusal.fix}")


def describe_launch(launch: Launch) -> str:
    """Return the command as one line for a shell, with all arguments: plan with unexpanded `${...}` to hide secrets."""
    return shlex.join(launch.argv)


def _build_args(tool: MCPTool) -> tuple[str, ...]:
    if tool.args or not isinstance(tool.command, CommandType):
        return tuple(tool.args or ())
    server = tool.server.strip()
    return (*DEFAULT_ARGS[tool.command], *([server] if server else []))


def _find_dangers(tool: MCPTool) -> list[LaunchFinding]:
    args = _build_args(tool)
    broken = [index for index, arg in enumerate(args) if "\0" in arg]
    if broken:
        return [LaunchFinding(index=index, message="this argument has a NUL, which none can carry") for index in broken]
    if tool.command is CommandType.NPX:
        return npx.check(args)
    if tool.command is CommandType.UVX:
        return uvx.check(args)
    return docker.check(args, tool.cwd) if tool.command is CommandType.DOCKER else []


def _key_of(tool: MCPTool, index: int | None) -> tuple[str | int, ...]:
    if not tool.args:
        return ("server",)
    return ("args",) if index is None else ("args", index)


def _build_env(tool: MCPTool) -> dict[str, Secret]:
    env = dict(tool.env)
    if tool.config:
        env.setdefault(CONFIG_VARIABLE, Secret(json.dumps(_to_json_value(tool.config), separators=(",", ":"))))
    return env


def _to_json_value(value: Any) -> Any:
    """Convert a value from YAML, which also has dates, sets and infinity, to one that JSON can express."""
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _add_docker_options(
    args: Sequence[str], env: Mapping[str, Secret], container: str | None
) -> tuple[tuple[str, ...], str | None]:
    """Add the flags that a server in a container needs.

    They keep standard input open, remove the container at its end, restrict its powers, memory and processes, pass the
    variables by name, and name the container so that it can be removed. Returns the arguments and that name.
    """
    start = docker.find_run_position(args)
    if start is None:
        return tuple(args), None
    options = docker.scan_run_options(args, start)
    added = [] if options.has_any("--rm") else ["--rm"]
    added += [] if options.has_any("-i", "--interactive") else ["-i"]
    # Without an init process a signal does not end most servers.
    added += [] if options.has_any("--init") else ["--init"]
    added += docker.hardening_flags(options)
    names = options.values("--name")
    name = names[-1] if names else container
    if name and not names:
        added += ["--name", name]
    passed = {value.partition("=")[0] for value in options.values("-e", "--env")}
    for variable in env:
        added += [] if variable in passed else ["-e", variable]
    return (*args[:start], *added, *args[start:]), name or None
