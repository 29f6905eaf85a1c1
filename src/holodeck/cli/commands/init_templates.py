"""The MCP servers that `holodeck init` can write into a new agent file, and how any other one is named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import click

from holodeck.config.server_names import name_for
from holodeck.models.tool_rules import SCOPED_NPM_NAME

_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._:+=~\[\]-]*")


@dataclass(frozen=True, kw_only=True)
class ServerTemplate:
    """A tool of the new file: its name, a comment that teaches, and its lines."""

    name: str
    comment: str
    lines: tuple[str, ...]


def _npm_template(name: str, package: str, description: str, comment: str, *more: str) -> ServerTemplate:
    lines = (f"description: {description}", f'server: "{package}"', "command: npx", f'args: ["-y", "{package}"]', *more)
    return ServerTemplate(name=name, comment=comment, lines=lines)


def _pypi_template(name: str, package: str, description: str, comment: str, *more: str) -> ServerTemplate:
    lines = (f"description: {description}", f"server: {package}", "command: uvx", f'args: ["{package}"]', *more)
    return ServerTemplate(name=name, comment=comment, lines=lines)


KNOWN_SERVERS: dict[str, ServerTemplate] = {
    "files": _npm_template(
        "files",
        "@modelcontextprotocol/server-filesystem",
        "Read and write the files in the data folder",
        "An npm package, started with npx. It may touch only the folders listed here.",
        "config:",
        "  allowed_directories:",
        '    - "${workspaceFolder}/data"',
    ),
    "memory": _npm_template(
        "memory",
        "@modelcontextprotocol/server-memory",
        "Remember facts between conversations",
        "A knowledge graph, kept in a file beside this one.",
        "env:",
        '  MEMORY_FILE_PATH: "${workspaceFolder}/memory.jsonl"',
    ),
    "everything": _npm_template(
        "everything",
        "@modelcontextprotocol/server-everything",
        "Try every feature of MCP",
        "The reference server: one tool for each thing that MCP can do.",
    ),
    "time": _pypi_template(
        "time", "mcp-server-time", "Tell the time in any time zone", "A PyPI package, started with uvx."
    ),
    "git": _pypi_template(
        "git", "mcp-server-git", "Read and change git repositories", "A PyPI package, started with uvx."
    ),
    "fetch": _pypi_template(
        "fetch", "mcp-server-fetch", "Fetch web pages as text", "It reaches the web: mind what it finds."
    ),
}


def require_template(text: str) -> ServerTemplate:
    """The entry that `--mcp TEXT` asks for. Raises a usage error that shows the forms."""
    if text in KNOWN_SERVERS:
        return KNOWN_SERVERS[text]
    if text.startswith(("https://", "http://")):
        return _remote_template(text)
    runner, _, package = text.partition(":")
    if SCOPED_NPM_NAME.fullmatch(text):
        runner, package = "npx", text
    if runner not in {"npx", "uvx", "docker"} or not _PACKAGE.fullmatch(package):
        known = ", ".join(KNOWN_SERVERS)
        forms = "npx:PACKAGE, uvx:PACKAGE, docker:IMAGE, @scope/package or an https:// URL"
        raise click.BadParameter(f"'{text}' is not one of {known}; other servers are given as {forms}")
    args = {"npx": f'["-y", "{package}"]', "uvx": f'["{package}"]', "docker": f'["run", "--rm", "-i", "{package}"]'}
    lines = ("description: Say what the agent should use it for", f'server: "{package}"', f"command: {runner}")
    return ServerTemplate(name=name_for(package), comment="", lines=(*lines, f"args: {args[runner]}"))


def _remote_template(url: str) -> ServerTemplate:
    if any(char in url for char in '"\\\n\r\t ${}'):
        raise click.BadParameter("the URL has characters that do not belong in one")
    host = urlsplit(url).hostname
    if not host:
        raise click.BadParameter("the URL has no host")
    transport = "sse" if url.rstrip("/").endswith("/sse") else "http"
    lines = ("description: Say what the agent should use it for", f"transport: {transport}", f'url: "{url}"')
    comment = 'A server somewhere else. Most want a token: headers: {Authorization: "Bearer ${NAME}"}'
    return ServerTemplate(name=name_for(host), comment=comment, lines=lines)
