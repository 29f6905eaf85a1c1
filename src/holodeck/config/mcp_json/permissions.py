"""Translation of permissions: which tools of a server may be used, and which need an approval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.config.mcp_json.tool_draft import ToolDraft
from holodeck.models.file_model import quote_value

_ALLOW = ("includeTools", "available_tools", "allowedTools", "enabledTools")
_DENY = ("excludeTools", "disabledTools")
_POLICIES = ("always_allow", "always_ask", "always_deny")


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
