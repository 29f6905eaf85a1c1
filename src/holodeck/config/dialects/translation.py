"""One server as another program writes it, in our words. No key is dropped without a word about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holodeck.config.dialects.credentials import take_credentials
from holodeck.config.dialects.draft import Draft
from holodeck.config.dialects.permissions import take_permissions
from holodeck.config.dialects.programs import take_timeout
from holodeck.config.dialects.transport import drop_foreign, take_transport
from holodeck.models.base import shown
from holodeck.models.contract import COMMANDS
from holodeck.models.tool import MCPTool

_OTHERWISE = frozenset({"name", "type", "timeout", "env", "args", "command", "url", "headers", "auth", "cwd"})
_OURS = frozenset(MCPTool.model_fields) - _OTHERWISE - {"transport", "env_file"}
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


def translate(draft: Draft, *, workspace: Path, known: Callable[[str], str]) -> bool:
    """Fill the draft's tool from its entry. False for an entry that is not an MCP server."""
    if not take_transport(draft, known):
        return False
    _environment(draft, workspace)
    _own_words(draft)
    take_permissions(draft)
    take_credentials(draft)
    take_timeout(draft)
    _leftovers(draft)
    drop_foreign(draft)
    _asleep(draft)
    return True


def _asleep(draft: Draft) -> None:
    """A server that is switched off may name a command that could not be started here."""
    command = draft.tool.get("command")
    if draft.tool.get("enabled") is False and command is not None and command not in COMMANDS:
        draft.warn(draft.origins[("command",)], f"the command {shown(command)} could not be started if it were enabled")
        del draft.tool["command"]


def _environment(draft: Draft, workspace: Path) -> None:
    env: dict[str, Any] = {}
    for source in ("env", "envs"):
        key, values = draft.take(source)
        if not key or values is None:
            continue
        if not isinstance(values, dict):
            draft.refuse((key,), f"'{key}' must be an object of names and values")
            continue
        env |= {name: value for name, value in values.items() if value is not None}  # null: not set at all
        draft.origins[("env",)] = (key,)
    key, names = draft.take("env_keys")
    for name in names if isinstance(names, list) else ():
        env.setdefault(str(name), f"${{{name}}}")
        draft.origins.setdefault(("env",), (key,))
    if env:
        draft.tool["env"] = env
    key, file = draft.take("envFile", "env_file")
    if key and file:
        draft.put("env_file", file, (key,))
    key, folder = draft.take("cwd")
    if draft.tool["transport"] == "stdio":
        is_relative = isinstance(folder, str) and not folder.startswith(("~", "$"))
        draft.put("cwd", str(workspace / folder) if is_relative else folder or str(workspace), (key,) if key else ())
    elif key:
        draft.put("cwd", folder, (key,))


def _own_words(draft: Draft) -> None:
    """A person may write our own keys into their file, such as `allow_unsafe_args`."""
    for name in draft.left():
        if name in _OURS:
            key, value = draft.take(name)
            draft.put(name, value, (key,))


def _leftovers(draft: Draft) -> None:
    for key in draft.left():
        if key == "name" and not draft.entry.path:
            continue  # the name of the single server of a file
        reason = _UNSUPPORTED.get(key)
        message = f"unsupported: {reason}" if reason else f"unsupported: HoloDeck knows no key {shown(key)} of a server"
        draft.warn((key,), message)
