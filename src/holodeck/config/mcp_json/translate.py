"""Translation of one server entry of another program into the keys of our files. Every unused key has a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holodeck.config.mcp_json.auth import translate_auth
from holodeck.config.mcp_json.permissions import translate_permissions
from holodeck.config.mcp_json.programs import translate_timeout
from holodeck.config.mcp_json.tool_draft import ToolDraft
from holodeck.config.mcp_json.transport import drop_foreign_keys, translate_transport
from holodeck.models.file_model import quote_value
from holodeck.models.tool import MCPTool
from holodeck.models.tool_rules import COMMANDS

_TRANSLATED_KEYS = frozenset({"name", "type", "timeout", "env", "args", "command", "url", "headers", "auth", "cwd"})
_OWN_KEYS = frozenset(MCPTool.model_fields) - _TRANSLATED_KEYS - {"transport", "env_file"}
_PROVENANCE = "it says where the entry came from, which nothing here depends on"
_DEFERRED = "every tool of a server is offered from the start"
_UNSUPPORTED: Mapping[str, str] = {
    "dev": "servers are not restarted when their files change",
    "sandboxEnabled": "the server is started without a sandbox of the editor",
    "gallery": _PROVENANCE,
    "version": _PROVENANCE,
    "bundled": _PROVENANCE,
    "display_name": "a server is called by its key",
    "name": "a server is called by its key",
    "title": "a server is called by its key",
    "icon": "nothing here shows icons",
    "alwaysLoad": _DEFERRED,
    "deferTools": _DEFERRED,
    "headersHelper": "it is a shell command, and none is run to make headers; write them in 'headers'",
    "keep_alive": "a server is kept until it is closed",
    "include_tags": "tools are chosen by their names, with 'allowed_tools'",
    "exclude_tags": "tools are chosen by their names, with 'denied_tools'",
    "authProviderType": "only OAuth of the server itself is spoken; see 'auth'",
}


def translate_entry(draft: ToolDraft, *, workspace: Path, expand: Callable[[str], str]) -> bool:
    """Fill the tool of a draft from its entry. Returns False for an entry that is no MCP server.

    `workspace` is the base of a relative `cwd`; `expand` replaces references whose values are known.
    """
    if not translate_transport(draft, expand):
        return False
    _translate_environment(draft, workspace)
    _copy_own_keys(draft)
    translate_permissions(draft)
    translate_auth(draft)
    translate_timeout(draft)
    _warn_remaining_keys(draft)
    drop_foreign_keys(draft)
    _drop_disabled_command(draft)
    return True


def _drop_disabled_command(draft: ToolDraft) -> None:
    """Remove a command that is not allowed from a disabled server, with a warning instead of an error."""
    command = draft.tool.get("command")
    if draft.tool.get("enabled") is False and command is not None and command not in COMMANDS:
        draft.warn(
            draft.origins[("command",)], f"the command {quote_value(command)} could not be started if it were enabled"
        )
        del draft.tool["command"]


def _translate_environment(draft: ToolDraft, workspace: Path) -> None:
    env: dict[str, Any] = {}
    for source in ("env", "envs"):
        key, values = draft.pop(source)
        if not key or values is None:
            continue
        if not isinstance(values, dict):
            draft.refuse((key,), f"'{key}' must be an object of names and values")
            continue
        # Null means that the variable is not set.
        env |= {name: value for name, value in values.items() if value is not None}
        draft.origins[("env",)] = (key,)
    key, names = draft.pop("env_keys")
    for name in names if isinstance(names, list) else ():
        env.setdefault(str(name), f"${{{name}}}")
        draft.origins.setdefault(("env",), (key,))
    if env:
        draft.tool["env"] = env
    key, file = draft.pop("envFile", "env_file")
    if key and file:
        draft.set_key("env_file", file, (key,))
    key, folder = draft.pop("cwd")
    if draft.tool["transport"] == "stdio":
        is_relative = isinstance(folder, str) and not folder.startswith(("~", "$"))
        draft.set_key(
            "cwd", str(workspace / folder) if is_relative else folder or str(workspace), (key,) if key else ()
        )
    elif key:
        draft.set_key("cwd", folder, (key,))


def _copy_own_keys(draft: ToolDraft) -> None:
    """Copy keys of our own files, such as `allow_unsafe_args`, which are allowed in these files as well."""
    for name in draft.remaining_keys():
        if name in _OWN_KEYS:
            key, value = draft.pop(name)
            draft.set_key(name, value, (key,))


def _warn_remaining_keys(draft: ToolDraft) -> None:
    for key in draft.remaining_keys():
        # A file that is one server has its name inside, and the name is used.
        if key == "name" and not draft.entry.path:
            continue
        reason = _UNSUPPORTED.get(key)
        message = (
            f"unsupported: {reason}" if reason else f"unsupported: HoloDeck knows no key {quote_value(key)} of a server"
        )
        draft.warn((key,), message)
