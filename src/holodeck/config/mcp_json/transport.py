"""Translation of transport, command and URL of a server, from the forms that other programs write.

A single server may also come from a URL or a command line instead of a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pydantic

from holodeck.config.mcp_json.find_servers import ToolDraft
from holodeck.config.mcp_json.programs import GEMINI, GOOSE, ZED, Program
from holodeck.config.server_loader import LoadedServers
from holodeck.config.server_names import name_for, name_for_command
from holodeck.config.tool_list import LoadedTool
from holodeck.config.validation import explain
from holodeck.config.yaml_reader import Document
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem
from holodeck.models.file_model import quote_value
from holodeck.models.tool import MCPTool
from holodeck.models.tool_rules import COMMANDS, CommandRule
from holodeck.models.transport import FIELD_TRANSPORTS
from holodeck.models.url import BadURLError, parse_endpoint

_TRANSPORTS: Mapping[str, str] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "https": "http",
    "remote": "http",
    "streamable": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "ws": "websocket",
    "wss": "websocket",
    "websocket": "websocket",
}
_GOOSE_PARTS = frozenset({"builtin", "platform", "frontend", "inline_python"})
_WINDOWS_ENDINGS = (".cmd", ".exe", ".ps1", ".bat")
Expand = Callable[[str], str]
"""Replaces the references in a text whose values are known."""


def translate_transport(draft: ToolDraft, expand: Expand) -> bool:
    """Set `transport`, and `command` or `url`, of the tool. Returns False for an entry that is no MCP server."""
    kind_key, kind = draft.pop("type", "transport")
    if str(kind) in _GOOSE_PARTS and draft.program == GOOSE:
        draft.warn((kind_key,), f"unsupported: {quote_value(kind)} is a part of goose, not a server of its own")
        return False
    draft.pop("transport")
    if draft.program == ZED:
        source_key, source = draft.pop("source")
        if source == "extension":
            draft.warn((source_key,), "unsupported: this server is part of an extension of Zed")
            return False
    command_key, command = draft.pop("command", "cmd")
    url_key, url = draft.pop("httpUrl", "url", "serverUrl", "uri")
    transport = _parse_transport(draft, kind_key, kind)
    if transport is None:
        transport = "stdio" if command or not url_key else _transport_of_url(draft.program, url_key, expand(str(url)))
    draft.set_key("transport", transport, (kind_key,) if kind_key else (command_key or url_key,))
    if transport == "stdio":
        _put_command(draft, command_key, command)
        if url_key:
            draft.warn((url_key,), f"'{url_key}' is not used: the server is started with 'command'")
    else:
        _put_url(draft, url_key, url)
        if command_key:
            draft.warn((command_key,), f"'{command_key}' is not used: the server is reached by its URL")
    return True


def transport_of(url: str) -> str:
    """Return the transport of a URL for which none is named."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "http"
    if parts.scheme.lower() in {"ws", "wss"}:
        return "websocket"
    return "sse" if parts.path.rstrip("/").endswith("/sse") else "http"


def drop_foreign_keys(draft: ToolDraft) -> None:
    """Remove keys without a meaning for the transport, with a warning: other programs ignore them."""
    transport = draft.tool["transport"]
    for key in list(draft.tool):
        transports = FIELD_TRANSPORTS.get(key)
        if transports is None or transport in transports or (key == "command"):
            continue
        value = draft.tool.pop(key)
        if value:
            draft.warn(draft.origins[(key,)], f"'{key}' has no meaning for {transport} transport: it is not used")


def _parse_transport(draft: ToolDraft, key: str, kind: Any) -> str | None:
    if not key or kind is None:
        return None
    named = _TRANSPORTS.get(re.sub(r"[-_ ]", "", str(kind)).lower())
    if named is None:
        known = "stdio, http, sse, ws"
        draft.refuse((key,), f"Unknown transport {quote_value(kind)}. Supported transports: {known}")
        return "stdio"
    return named


def _transport_of_url(program: Program, key: str, url: str) -> str:
    if key == "httpUrl":
        return "http"
    usual = transport_of(url)
    # Gemini CLI has 'httpUrl' for streamable HTTP, and 'url' for SSE.
    if key == "url" and program == GEMINI and usual == "http" and not urlsplit(url).path.rstrip("/").endswith("/mcp"):
        return "sse"
    return usual


def _put_url(draft: ToolDraft, key: str, url: Any) -> None:
    if isinstance(url, str) and url.startswith(("unix:", "pipe:")):
        draft.refuse((key,), "a server behind a socket file or pipe is not supported", "Give it a port on localhost.")
    if key:
        draft.set_key("url", url, (key,))


def _put_command(draft: ToolDraft, key: str, command: Any) -> None:
    args_key, args = draft.pop("args", "arguments")
    argv = list(command) if isinstance(command, list) else [command]
    argv = [each for each in argv if each is not None]
    rest = draft.scalar_texts((args_key,), args) if isinstance(args, list) else args
    if not argv:
        draft.set_key("args", rest, (args_key,))
        return
    if isinstance(command, str) and not args_key and " " in command:
        argv = _split_command_line(command) or argv
    if isinstance(rest, list) or rest is None:
        argv, more = argv[:1], [*argv[1:], *(rest or [])]
        rest = more or rest
    program, rest = _unwrap_command(draft, key, argv[0], rest)
    draft.set_key("command", program, (key,))
    if rest is not None:
        draft.set_key("args", rest, (args_key or key,))


def _split_command_line(command: str) -> list[str]:
    """Return the parts of a command line that starts with an allowed command; empty for any other text."""
    try:
        argv = shlex.split(command)
    except ValueError:
        return []
    return argv if argv and argv[0] in COMMANDS else []


def _unwrap_command(draft: ToolDraft, key: str, program: Any, args: Any) -> tuple[Any, Any]:
    """Reduce `cmd /c npx` to `npx`, and the full path of an allowed command to its name, which is found on PATH."""
    if not isinstance(program, str):
        return program, args
    if _program_name(program) == "cmd" and isinstance(args, list) and len(args) > 1 and str(args[0]).lower() == "/c":
        return _unwrap_command(draft, key, args[1], args[2:])
    if _program_name(program) in COMMANDS and program not in COMMANDS:
        draft.warn((key,), f"{quote_value(program)} is started as '{_program_name(program)}', found on PATH")
        return _program_name(program), args
    return program, args


def _program_name(program: str) -> str:
    name = Path(program.replace("\\", "/")).name.lower()
    for ending in _WINDOWS_ENDINGS:
        name = name.removesuffix(ending)
    return name


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
