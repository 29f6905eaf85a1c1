"""The program that wrote an entry, and the unit of its `timeout`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holodeck.config.mcp_json.find_servers import GOOSE_LIST_PATH, ServerEntry
from holodeck.config.mcp_json.tool_draft import ToolDraft
from holodeck.lib.limits import MAX_TIMEOUT

UNKNOWN = "an unknown program"
GEMINI = "Gemini CLI"
GOOSE = "goose"
_BY_FILE: Mapping[str, str] = {
    ".mcp.json": "Claude Code",
    ".claude.json": "Claude Code",
    "managed-mcp.json": "Claude Code",
    "claude_desktop_config.json": "Claude Desktop",
    "mcp-config.json": "Copilot CLI",
    "cline_mcp_settings.json": "Cline",
    "mcp_settings.json": "Cline",
}
_BY_FOLDER: Mapping[str, str] = {
    ".gemini": GEMINI,
    ".qwen": GEMINI,
    ".vscode": "VS Code",
    ".cursor": "Cursor",
    ".roo": "Cline",
}
_BY_KEY: Mapping[str, str] = {
    "httpUrl": GEMINI,
    "trust": GEMINI,
    "includeTools": GEMINI,
    "headersHelper": "Claude Code",
    "alwaysLoad": "Claude Code",
    "toolPermissions": "Claude Code",
    "keep_alive": "FastMCP",
    "include_tags": "FastMCP",
    "exclude_tags": "FastMCP",
    "deferTools": "Copilot CLI",
}
_SECONDS = frozenset({GOOSE, "Cline"})
_MILLISECONDS = frozenset({"Claude Code", GEMINI, "FastMCP", "Copilot CLI"})
# A timeout under a second makes no sense for a tool, so a smaller number of an unknown program means seconds.
_MIN_MILLISECONDS = 1000


def program_of(path: Path, entry: ServerEntry) -> str:
    """The program that wrote an entry, from the names of the file, of its folder and of the keys; else `UNKNOWN`."""
    if entry.path[:1] == GOOSE_LIST_PATH:
        return GOOSE
    by_file = _BY_FILE.get(path.name) or _BY_FOLDER.get(path.parent.name)
    if by_file:
        return by_file
    by_key = next((program for key, program in _BY_KEY.items() if key in entry.value), None)
    return by_key or ("VS Code" if entry.path[:1] == ("servers",) else UNKNOWN)


def translate_timeout(draft: ToolDraft) -> None:
    """Set `request_timeout` of the tool, in seconds, from `timeout`, with a warning that shows the conversion."""
    key, value = draft.pop("timeout")
    if not key or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        draft.refuse((key,), "'timeout' must be a number")
        return
    if value <= 0:
        draft.warn((key,), "unsupported: a call always has a time limit, so the usual one is used")
        return
    in_milliseconds = draft.program in _MILLISECONDS or (draft.program not in _SECONDS and value >= _MIN_MILLISECONDS)
    seconds = min(max(math.ceil(value / 1000 if in_milliseconds else value), 1), MAX_TIMEOUT)
    draft.set_key("request_timeout", seconds, (key,))
    if in_milliseconds or draft.program not in _SECONDS:
        unit = "milliseconds" if in_milliseconds else "seconds"
        whose = f" to {draft.program}" if draft.program in _MILLISECONDS else " as it seems"
        message = f"'timeout: {_format_number(value)}' is {unit}{whose}: calls may take {seconds} s here"
        draft.warn((key,), message, "Write 'request_timeout', in seconds, to be exact.")


def _format_number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
