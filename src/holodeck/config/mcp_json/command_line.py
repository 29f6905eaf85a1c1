"""A single MCP server from a URL or a command line instead of a file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from holodeck.config.mcp_json.transport import transport_of
from holodeck.config.server_loader import LoadedServers
from holodeck.config.server_names import name_for, name_for_command
from holodeck.config.tool_list import LoadedTool
from holodeck.config.validation import explain
from holodeck.config.yaml_reader import Document
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem
from holodeck.models.tool import MCPTool
from holodeck.models.tool_rules import COMMANDS, CommandRule
from holodeck.models.url import BadURLError, parse_endpoint


def is_url(text: str) -> bool:
    """Return whether a target is a URL, and not a file or a command line."""
    return text.lower().startswith(("https://", "http://", "wss://", "ws://"))


def is_command(text: str) -> bool:
    """Return whether a target is a command line: a command that may start a server, with arguments."""
    return text.split(" ", 1)[0] in COMMANDS and " " in text


def load_server_at_url(url: str, *, headers: Mapping[str, str], shown_as: str) -> LoadedServers:
    """Return the server at a URL. Raises `ConfigError` for a URL that is invalid or not allowed. Nothing is dialled."""
    try:
        host = parse_endpoint(url).host
    except BadURLError as error:
        raise _refusal_error(str(error), shown_as) from None
    tool = {"transport": transport_of(url), "url": url, **({"headers": dict(headers)} if headers else {})}
    return _load_server({"name": name_for(host), **tool}, shown_as)


def load_server_of_command(line: str, *, env: Mapping[str, str], folder: str, shown_as: str) -> LoadedServers:
    """Return the server of a command line, whatever the command is: a person has typed it. Nothing is started.

    `folder` is the working folder of the server. Raises `ConfigError` for a line that cannot be split into words.
    """
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise _refusal_error(f"the command line cannot be read: {str(error).lower()}", shown_as) from None
    if not argv:
        raise _refusal_error("the command line is empty", shown_as)
    tool = {"command": argv[0], "args": argv[1:], "cwd": folder, **({"env": dict(env)} if env else {})}
    return _load_server({"name": name_for_command(argv), **tool}, shown_as)


def _load_server(entry: dict[str, Any], shown_as: str) -> LoadedServers:
    document = Document(file=shown_as, value={"tools": [entry]})
    data = {"tools": [CommandRule(allows_all=True).apply({"type": "mcp", **entry})]}
    try:
        tool = MCPTool.model_validate(data["tools"][0])
    except pydantic.ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        explained = [explain({**item, "loc": ("tools", 0, *item["loc"])}, document, data) for item in found]
        raise ConfigError.of(
            [_problem_without_position(problem.message, problem.fix, shown_as) for problem in explained]
        ) from None
    folder = Path(tool.cwd or ".").absolute()
    return LoadedServers(tools=(LoadedTool(tool=tool, written=entry, file=shown_as, folder=folder),))


def _problem_without_position(message: str, fix: str, shown_as: str) -> Problem:
    return Problem(message=message, fix=fix, file=shown_as, kind=MCPConfigError)


def _refusal_error(message: str, shown_as: str) -> ConfigError:
    return ConfigError.of([_problem_without_position(message, "", shown_as)])
