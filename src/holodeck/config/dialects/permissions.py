"""Which tools of a server may be used, and which a person wants to be asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.config.dialects.draft import Draft
from holodeck.models.base import shown

_ALLOW = ("includeTools", "available_tools", "allowedTools", "enabledTools")
_DENY = ("excludeTools", "disabledTools")
_POLICIES = ("always_allow", "always_ask", "always_deny")


def take_permissions(draft: Draft) -> None:
    """`enabled`, `allowed_tools`, `denied_tools` and `approval`, from all that other programs call so."""
    _disabled(draft)
    gathered = _Gathered(draft)
    for key in _ALLOW:
        gathered.allow(key)
    for key in _DENY:
        gathered.deny(key)
    gathered.tools()
    gathered.policies()
    gathered.approved_before()
    gathered.trust()
    gathered.put()


def _disabled(draft: Draft) -> None:
    key, disabled = draft.take("disabled")
    if not key:
        return
    if isinstance(disabled, bool):
        draft.put("enabled", not disabled, (key,))
    else:
        draft.refuse((key,), "'disabled' must be true or false")


class _Gathered:
    """What the keys of one server say together."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._allowed: list[Any] | None = None
        self._denied: list[Any] = []
        self._ask: list[Any] = []
        self._no_ask: list[Any] = []
        self._origins: dict[str, str] = {}

    def allow(self, key: str) -> None:
        names = self._names(key)
        if names and "*" not in names:  # an empty list means all, to the programs that write one
            self._allowed = [*(self._allowed or []), *names]
            self._origins.setdefault("allowed_tools", key)

    def deny(self, key: str) -> None:
        self._denied += self._names(key) or []
        self._origins.setdefault("denied_tools", key)

    def tools(self) -> None:
        """`tools` is a list of names, a list of tools with their policy, or changes to tools."""
        value = self._draft.entry.value.get("tools")
        if not isinstance(value, list):
            if self._draft.take("tools")[0] and value:
                self._draft.warn(("tools",), "unsupported: tools are offered as the server describes them")
        elif all(isinstance(item, str) for item in value):
            self.allow("tools")
        else:
            self._draft.take("tools")
            for index, item in enumerate(value):
                self._policy(("tools", index), item)

    def policies(self) -> None:
        key, value = self._draft.take("toolPermissions")
        for name, policy in value.items() if isinstance(value, dict) else ():
            self._policy((key, name), {"name": name, "permission_policy": policy})
        if key and not isinstance(value, dict):
            self._draft.warn((key,), "unsupported: only an object of tool names and policies is read")

    def approved_before(self) -> None:
        for key in ("autoApprove", "alwaysAllow"):
            names = self._names(key)
            if names is not None:
                self._no_ask += names
                self._ask += [] if "*" in names else ["*"]
                self._origins.setdefault("approval", key)

    def trust(self) -> None:
        key, trust = self._draft.take("trust")
        if isinstance(trust, bool):
            self._origins.setdefault("approval", key)
            (self._no_ask if trust else self._ask).append("*")
        elif key:
            self._draft.refuse((key,), "'trust' must be true or false")

    def put(self) -> None:
        self._put("allowed_tools", self._allowed)
        self._put("denied_tools", self._denied)
        if "*" in self._no_ask:
            self._put("approval", "never")
        elif self._ask == ["*"] and not self._no_ask:
            self._put("approval", "always")
        elif self._ask or self._no_ask:
            self._put("approval", {"always": self._ask, "never": self._no_ask})

    def _put(self, key: str, value: Any) -> None:
        if value and key not in self._draft.tool:
            self._draft.put(key, value, (self._origins.get(key, "tools"),))

    def _names(self, key: str) -> list[Any] | None:
        taken, value = self._draft.take(key)
        if not taken or value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._draft.refuse((key,), f"'{key}' must be a list of tool names")
            return None
        return value

    def _policy(self, path: tuple[str | int, ...], item: Any) -> None:
        name = item.get("name") if isinstance(item, Mapping) else None
        policy = item.get("permission_policy") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or policy not in (*_POLICIES, None):
            message = f"the policy {shown(policy)} is not known" if isinstance(name, str) else "a tool needs a 'name'"
            self._draft.refuse(path, message, f"Policies: {', '.join(_POLICIES)}.")
        elif policy == "always_deny":
            self._denied.append(name)
        elif policy == "always_ask":
            self._ask.append(name)
        elif policy == "always_allow":
            self._no_ask.append(name)
