"""The programs with lists of MCP servers: where each has its file, how it is recognized, and how it says a server.

This is the one table about them. Reading uses what recognizes a file and the unit of its timeouts; writing uses the
`EntryForm`, the keys in which a program says what a server of ours says. A program without a form is only read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from holodeck.config.yaml_reader import KeyPath
from holodeck.lib.record import record

TimeoutUnit = Literal["ms", "s"]


@record
class EntryForm:
    """The keys by which a program says a server. What has no key here cannot be said in its file."""

    command_key: str = "command"
    env_key: str = "env"
    stdio_type: str | None = None
    """`type` of a server that is a process; None: there is no such key."""
    urls: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """By transport of ours, the key of the URL and the `type`. A transport that is missing cannot be said."""
    headers_key: str = "headers"
    reference: str = ""
    """How a variable is referred to, with `NAME` for its name. Empty: values are used as they are written."""
    has_defaults: bool = False
    """Whether `${NAME:-default}` is understood."""
    env_names_key: str = ""
    """List of variables that a process gets from the program's own environment."""
    header_names_key: str = ""
    """Mapping of headers to the variables that have their values."""
    bearer_key: str = ""
    """Name of the variable with a bearer token."""
    timeout_key: str = ""
    startup_timeout_key: str = ""
    """Seconds for a server to start."""
    allow_key: str = ""
    deny_key: str = ""
    auto_approve_key: str = ""
    """Tools that need no approval, where every other one needs it."""
    off: tuple[str, bool] | None = None
    """The key that switches a server off, with its value."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """Keys of ours with the same meaning under another name, or under the same."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """What every entry has."""
    name_key: str = ""
    oauth_key: str = ""
    oauth_names: Mapping[str, str] = field(default_factory=dict)
    """By key of our `auth`, the key in the block of the program."""


@record
class Program:
    """A program that has a list of MCP servers in a file of its own."""

    label: str
    name: str = ""
    """As `--for` takes it. Empty: its entries are read, not written."""
    format: Literal["json", "yaml", "toml"] = "json"
    list_path: KeyPath = ("mcpServers",)
    """Where its servers are in its file."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """The file of a user, by platform (`linux`, `darwin`); `~` is the home."""
    home_variable: str = ""
    """Variable that replaces the folder of the file."""
    file_names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Keys of an entry that only this program writes."""
    timeout_unit: TimeoutUnit | None = None
    form: EntryForm = field(default_factory=EntryForm)

    def find_file(self, environ: Mapping[str, str] | None = None) -> Path:
        """Return the file of this user on this system. It need not exist."""
        environ = os.environ if environ is None else environ
        path = Path(self.paths.get(sys.platform, self.paths["linux"]))
        folder = environ.get(self.home_variable, "") if self.home_variable else ""
        return Path(folder).expanduser() / path.name if folder else path.expanduser()


def _anywhere(path: str) -> dict[str, str]:
    return {"linux": path, "darwin": path}


def _application(folder: str) -> dict[str, str]:
    """Return a file in the folder of an application: under ~/.config, and on a Mac under ~/Library."""
    return {"linux": f"~/.config/{folder}", "darwin": f"~/Library/Application Support/{folder}"}


_CAMEL_OAUTH = {"client_id": "clientId", "client_secret": "clientSecret", "scopes": "scopes"}

UNKNOWN = Program(label="an unknown program")
CLAUDE_DESKTOP = Program(
    label="Claude Desktop",
    name="claude",
    paths=_application("Claude/claude_desktop_config.json"),
    file_names=("claude_desktop_config.json",),
)
CLAUDE_CODE = Program(
    label="Claude Code",
    name="claude-code",
    paths=_anywhere("~/.claude.json"),
    file_names=(".mcp.json", ".claude.json", "managed-mcp.json"),
    keys=("headersHelper", "alwaysLoad", "toolPermissions"),
    timeout_unit="ms",
    form=EntryForm(
        stdio_type="stdio",
        urls={"http": ("url", "http"), "sse": ("url", "sse"), "websocket": ("url", "ws")},
        reference="${NAME}",
        has_defaults=True,
        timeout_key="timeout",
        oauth_key="oauth",
        oauth_names={"client_id": "clientId", "redirect_port": "callbackPort", "scopes": "scopes"},
    ),
)
CURSOR = Program(
    label="Cursor",
    name="cursor",
    paths=_anywhere("~/.cursor/mcp.json"),
    folders=(".cursor",),
    form=EntryForm(
        # It asks the server which of the two it speaks.
        urls={"http": ("url", None), "sse": ("url", None)},
        reference="${env:NAME}",
        copied={"env_file": "envFile"},
        oauth_key="auth",
        oauth_names={"client_id": "CLIENT_ID", "client_secret": "CLIENT_SECRET", "scopes": "scopes"},
    ),
)
VSCODE = Program(
    label="VS Code",
    name="vscode",
    list_path=("servers",),
    paths=_application("Code/User/mcp.json"),
    folders=(".vscode",),
    form=EntryForm(
        stdio_type="stdio",
        urls={"http": ("url", "http"), "sse": ("url", "sse")},
        reference="${env:NAME}",
        copied={"cwd": "cwd", "env_file": "envFile"},
        oauth_key="oauth",
        oauth_names={"client_id": "clientId"},
    ),
)
CODEX = Program(
    label="Codex",
    name="codex",
    format="toml",
    list_path=("mcp_servers",),
    paths=_anywhere("~/.codex/config.toml"),
    home_variable="CODEX_HOME",
    keys=("bearer_token_env_var", "env_http_headers", "tool_timeout_sec", "startup_timeout_sec"),
    timeout_unit="s",
    form=EntryForm(
        urls={"http": ("url", None)},
        headers_key="http_headers",
        env_names_key="env_vars",
        header_names_key="env_http_headers",
        bearer_key="bearer_token_env_var",
        timeout_key="tool_timeout_sec",
        startup_timeout_key="startup_timeout_sec",
        allow_key="enabled_tools",
        deny_key="disabled_tools",
        off=("enabled", False),
        copied={"cwd": "cwd", "required": "required"},
    ),
)
GEMINI = Program(
    label="Gemini CLI",
    name="gemini",
    paths=_anywhere("~/.gemini/settings.json"),
    folders=(".gemini", ".qwen"),
    keys=("httpUrl", "trust", "includeTools"),
    timeout_unit="ms",
    form=EntryForm(
        urls={"http": ("httpUrl", None), "sse": ("url", None)},
        reference="${NAME}",
        has_defaults=True,
        timeout_key="timeout",
        allow_key="includeTools",
        deny_key="excludeTools",
        copied={"cwd": "cwd", "description": "description"},
        oauth_key="oauth",
        oauth_names=_CAMEL_OAUTH,
    ),
)
GOOSE = Program(
    label="goose",
    name="goose",
    format="yaml",
    list_path=("extensions",),
    paths=_anywhere("~/.config/goose/config.yaml"),
    timeout_unit="s",
    form=EntryForm(
        command_key="cmd",
        env_key="envs",
        stdio_type="stdio",
        urls={"http": ("uri", "streamable_http")},
        env_names_key="env_keys",
        timeout_key="timeout",
        allow_key="available_tools",
        off=("enabled", False),
        copied={"description": "description"},
        # It requires a description, and advises a timeout.
        constants={"enabled": True, "description": "", "timeout": 300},
        name_key="name",
    ),
)
ZED = Program(
    label="Zed",
    name="zed",
    list_path=("context_servers",),
    paths=_anywhere("~/.config/zed/settings.json"),
    folders=("zed", ".zed"),
    form=EntryForm(urls={"http": ("url", None)}, off=("enabled", False)),
)
WINDSURF = Program(
    label="Windsurf",
    name="windsurf",
    paths=_anywhere("~/.codeium/windsurf/mcp_config.json"),
    folders=("windsurf",),
    form=EntryForm(
        urls={"http": ("serverUrl", None), "sse": ("serverUrl", None)},
        reference="${env:NAME}",
        off=("disabled", True),
    ),
)
CLINE = Program(
    label="Cline",
    name="cline",
    paths=_application("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    file_names=("cline_mcp_settings.json", "mcp_settings.json"),
    folders=(".roo",),
    timeout_unit="s",
    form=EntryForm(
        urls={"http": ("url", "streamableHttp"), "sse": ("url", "sse")},
        timeout_key="timeout",
        auto_approve_key="autoApprove",
        off=("disabled", True),
    ),
)
COPILOT = Program(label="Copilot CLI", file_names=("mcp-config.json",), keys=("deferTools",), timeout_unit="ms")
FASTMCP = Program(label="FastMCP", keys=("keep_alive", "include_tags", "exclude_tags"), timeout_unit="ms")

PROGRAMS: tuple[Program, ...] = (
    CLAUDE_DESKTOP,
    CLAUDE_CODE,
    CURSOR,
    VSCODE,
    CODEX,
    GEMINI,
    GOOSE,
    ZED,
    WINDSURF,
    CLINE,
    COPILOT,
    FASTMCP,
)
WRITABLE: Mapping[str, Program] = {program.name: program for program in PROGRAMS if program.name}
"""The programs whose entries can be written, by the name that `--for` takes."""


def program_of(path: Path, list_path: KeyPath, entry: Mapping[str, Any]) -> Program:
    """Return the program that wrote an entry, from the names of the file, of its folder and of the keys; else
    `UNKNOWN`.

    `list_path` is where the entry is listed.
    """
    for program in (GOOSE, CODEX, ZED):
        if list_path == program.list_path:
            return program
    for program in PROGRAMS:
        if path.name in program.file_names:
            return program
    for program in PROGRAMS:
        if path.parent.name in program.folders:
            return program
    for program in PROGRAMS:
        if any(key in entry for key in program.keys):
            return program
    return VSCODE if list_path == VSCODE.list_path else UNKNOWN
