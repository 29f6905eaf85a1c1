"""Translation of one server entry of another program into the keys of our files. Every unused key has a warning.

Transport, command and URL are translated in `transport`; the other keys, authentication and permissions here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holodeck.config.mcp_json.find_servers import ToolDraft
from holodeck.config.mcp_json.transport import drop_foreign_keys, translate_transport
from holodeck.lib.limits import MAX_TIMEOUT
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

_ALLOW = ("includeTools", "available_tools", "allowedTools", "enabledTools", "enabled_tools")
_DENY = ("excludeTools", "disabledTools", "disabled_tools")
_POLICIES = ("always_allow", "always_ask", "always_deny")

# A timeout under a second makes no sense for a tool, so a smaller number of an unknown program means seconds.
_MIN_MILLISECONDS = 1000
_WELL_KNOWN = "/.well-known/"
_UNSUPPORTED_AUTH: Mapping[str, str] = {
    "enterpriseManaged": "tokens of an enterprise's identity provider are not exchanged",
    "xaa": "tokens of an enterprise's identity provider are not exchanged",
    "redirectUri": "the redirect goes to a port of this machine; 'callbackPort' names it",
    "tokenParamName": "a token is sent in a header, never in a URL",
}
_OWN_KEY_NAMES: Mapping[str, str] = {
    "clientid": "client_id",
    "clientsecret": "client_secret",
    "scopes": "scopes",
    "scope": "scopes",
    "callbackport": "redirect_port",
    "redirectport": "redirect_port",
    "issuer": "issuer",
    "authservermetadataurl": "issuer",
    "clientmetadataurl": "client_metadata_url",
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
    for source in ("env_keys", "env_vars"):
        key, names = draft.pop(source)
        for listed in names if isinstance(names, list) else ():
            name = listed.get("name") if isinstance(listed, dict) else listed
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
            # goose requires a description, and writes an empty one.
            if name != "description" or value:
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


def translate_timeout(draft: ToolDraft) -> None:
    """Set `request_timeout` of the tool, in seconds, from `timeout`, with a warning that shows the conversion."""
    _translate_seconds(draft, "tool_timeout_sec", "request_timeout")
    _translate_seconds(draft, "startup_timeout_sec", "startup_timeout")
    key, value = draft.pop("timeout")
    if not key or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        draft.refuse((key,), "'timeout' must be a number")
        return
    if value <= 0:
        draft.warn((key,), "unsupported: a call always has a time limit, so the usual one is used")
        return
    unit = draft.program.timeout_unit
    in_milliseconds = unit == "ms" or (unit is None and value >= _MIN_MILLISECONDS)
    seconds = min(max(math.ceil(value / 1000 if in_milliseconds else value), 1), MAX_TIMEOUT)
    draft.set_key("request_timeout", seconds, (key,))
    if in_milliseconds or unit is None:
        meaning = "milliseconds" if in_milliseconds else "seconds"
        whose = f" to {draft.program.label}" if unit == "ms" else " as it seems"
        message = f"'timeout: {_format_number(value)}' is {meaning}{whose}: calls may take {seconds} s here"
        draft.warn((key,), message, "Write 'request_timeout', in seconds, to be exact.")


def _translate_seconds(draft: ToolDraft, key: str, ours: str) -> None:
    found, value = draft.pop(key)
    if found and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        draft.set_key(ours, min(max(math.ceil(value), 1), MAX_TIMEOUT), (key,))
    elif found:
        draft.refuse((key,), f"'{key}' must be a number of seconds")


def _format_number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def translate_permissions(draft: ToolDraft) -> None:
    """Set `enabled`, `allowed_tools`, `denied_tools` and `approval` of the tool from the keys of the entry."""
    _translate_disabled(draft)
    collector = _PermissionCollector(draft)
    for key in _ALLOW:
        collector.add_allowed(key)
    for key in _DENY:
        collector.add_denied(key)
    collector.add_tools()
    collector.add_policies()
    collector.add_auto_approvals()
    collector.add_trust()
    collector.write_to_draft()


def _translate_disabled(draft: ToolDraft) -> None:
    key, disabled = draft.pop("disabled")
    if not key:
        return
    if isinstance(disabled, bool):
        draft.set_key("enabled", not disabled, (key,))
    else:
        draft.refuse((key,), "'disabled' must be true or false")


class _PermissionCollector:
    """Combines the permissions of all keys of one server."""

    def __init__(self, draft: ToolDraft) -> None:
        self._draft = draft
        self._allowed: list[Any] | None = None
        self._denied: list[Any] = []
        self._approval_required: list[Any] = []
        self._approval_waived: list[Any] = []
        self._origins: dict[str, str] = {}

    def add_allowed(self, key: str) -> None:
        names = self._pop_names(key)
        # In the programs that write these keys, an empty list means all tools.
        if names and "*" not in names:
            self._allowed = [*(self._allowed or []), *names]
            self._origins.setdefault("allowed_tools", key)

    def add_denied(self, key: str) -> None:
        self._denied += self._pop_names(key) or []
        self._origins.setdefault("denied_tools", key)

    def add_tools(self) -> None:
        """Add `tools`: a list of names, or a list of tools with their policies. Changes to tools are not supported."""
        value = self._draft.entry.value.get("tools")
        if not isinstance(value, list):
            if self._draft.pop("tools")[0] and value:
                self._draft.warn(("tools",), "unsupported: tools are offered as the server describes them")
        elif all(isinstance(item, str) for item in value):
            self.add_allowed("tools")
        else:
            self._draft.pop("tools")
            for index, item in enumerate(value):
                self._add_policy(("tools", index), item)

    def add_policies(self) -> None:
        key, value = self._draft.pop("toolPermissions")
        for name, policy in value.items() if isinstance(value, dict) else ():
            self._add_policy((key, name), {"name": name, "permission_policy": policy})
        if key and not isinstance(value, dict):
            self._draft.warn((key,), "unsupported: only an object of tool names and policies is read")

    def add_auto_approvals(self) -> None:
        for key in ("autoApprove", "alwaysAllow"):
            names = self._pop_names(key)
            if names is not None:
                self._approval_waived += names
                self._approval_required += [] if "*" in names else ["*"]
                self._origins.setdefault("approval", key)

    def add_trust(self) -> None:
        key, trust = self._draft.pop("trust")
        if isinstance(trust, bool):
            self._origins.setdefault("approval", key)
            (self._approval_waived if trust else self._approval_required).append("*")
        elif key:
            self._draft.refuse((key,), "'trust' must be true or false")

    def write_to_draft(self) -> None:
        self._write_key("allowed_tools", self._allowed)
        self._write_key("denied_tools", self._denied)
        if "*" in self._approval_waived:
            self._write_key("approval", "never")
        elif self._approval_required == ["*"] and not self._approval_waived:
            self._write_key("approval", "always")
        elif self._approval_required or self._approval_waived:
            self._write_key("approval", {"always": self._approval_required, "never": self._approval_waived})

    def _write_key(self, key: str, value: Any) -> None:
        if value and key not in self._draft.tool:
            self._draft.set_key(key, value, (self._origins.get(key, "tools"),))

    def _pop_names(self, key: str) -> list[Any] | None:
        is_present, value = self._draft.pop(key)
        if not is_present or value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._draft.refuse((key,), f"'{key}' must be a list of tool names")
            return None
        return value

    def _add_policy(self, path: tuple[str | int, ...], item: Any) -> None:
        name = item.get("name") if isinstance(item, Mapping) else None
        policy = item.get("permission_policy") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or policy not in (*_POLICIES, None):
            message = (
                f"the policy {quote_value(policy)} is not known" if isinstance(name, str) else "a tool needs a 'name'"
            )
            self._draft.refuse(path, message, f"Policies: {', '.join(_POLICIES)}.")
        elif policy == "always_deny":
            self._denied.append(name)
        elif policy == "always_ask":
            self._approval_required.append(name)
        elif policy == "always_allow":
            self._approval_waived.append(name)


def translate_auth(draft: ToolDraft) -> None:
    """Set `headers` and `auth` of the tool from the keys of the entry."""
    _translate_headers(draft)
    for key in ("auth", "oauth", "authentication"):
        is_present, value = draft.pop(key)
        if not is_present or value in (None, False, {}):
            continue
        if isinstance(value, dict) and "type" in value and key == "auth":
            # This is the form of our own files.
            draft.set_key("auth", value, (key,))
        elif isinstance(value, dict):
            _translate_oauth(draft, key, value)
        elif value is True or value == "oauth":
            draft.set_key("auth", {"type": "oauth_authorization_code"}, (key,))
        elif isinstance(value, str):
            draft.set_key("auth", {"type": "bearer", "token": value}, (key,))
        else:
            draft.refuse((key,), f"'{key}' must be an object")


def _translate_headers(draft: ToolDraft) -> None:
    key, headers = draft.pop("headers", "http_headers")
    if key and headers is not None:
        draft.set_key("headers", _without_null(headers), (key,))
    key, options = draft.pop("requestInit")
    inner = options.get("headers") if isinstance(options, dict) else None
    if inner is not None and "headers" not in draft.tool:
        draft.set_key("headers", _without_null(inner), (key, "headers"))
    elif key:
        draft.warn((key,), "unsupported: only its 'headers' are used, where there are no others")
    _translate_named_variables(draft)


def _translate_named_variables(draft: ToolDraft) -> None:
    """Add the headers whose values Codex takes from variables, which it lists by name."""
    key, names = draft.pop("env_http_headers")
    if isinstance(names, dict) and names:
        headers = draft.tool.get("headers")
        named = {header: f"${{{name}}}" for header, name in names.items()}
        origin = draft.origins.get(("headers",), (key,))
        draft.set_key("headers", {**(headers if isinstance(headers, dict) else {}), **named}, origin)
    key, name = draft.pop("bearer_token_env_var")
    if key and name:
        draft.set_key("auth", {"type": "bearer", "token": f"${{{name}}}"}, (key,))


def _translate_oauth(draft: ToolDraft, key: str, block: Mapping[str, Any]) -> None:
    """Translate a block into the authorization code flow of OAuth, the only one that these blocks describe."""
    if block.get("enabled") is False:
        return
    auth: dict[str, Any] = {"type": "oauth_authorization_code"}
    draft.set_key("auth", auth, (key,))
    for name, value in block.items():
        ours = _OWN_KEY_NAMES.get(name.replace("_", "").lower())
        if name == "enabled" or value is None:
            continue
        if ours is None:
            reason = _UNSUPPORTED_AUTH.get(name, "HoloDeck has nothing that corresponds to it")
            draft.warn((key, name), f"unsupported: {reason}")
            continue
        auth[ours] = _convert_auth_value(ours, value)
        draft.origins[("auth", ours)] = (key, name)


def _convert_auth_value(name: str, value: Any) -> Any:
    if name == "scopes" and isinstance(value, str):
        return value.split()
    if name == "issuer" and isinstance(value, str):
        origin, _, document = value.partition(_WELL_KNOWN)
        # The tenant of `/.well-known/oauth-authorization-server/tenant`.
        tenant = document.partition("/")[2]
        return f"{origin}/{tenant}" if tenant else origin
    return value


def _without_null(values: Any) -> Any:
    return {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values
