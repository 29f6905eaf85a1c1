"""The versions of MCP that the client speaks, in two eras, and the terms negotiated with one server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from holodeck import __version__
from holodeck.lib.record import record


class ProtocolEra(StrEnum):
    """Legacy servers have a session that begins with a handshake; modern requests carry all they need in `_meta`."""

    LEGACY = "legacy"
    MODERN = "modern"


LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
CLIENT_INFO = {"name": "holodeck", "version": __version__}

META = "io.modelcontextprotocol"
META_VERSION = f"{META}/protocolVersion"
META_CAPABILITIES = f"{META}/clientCapabilities"
META_CLIENT = f"{META}/clientInfo"
META_SERVER = f"{META}/serverInfo"
META_LOG_LEVEL = f"{META}/logLevel"
META_SUBSCRIPTION = f"{META}/subscriptionId"
META_RELATED_TASK = f"{META}/related-task"
TASKS_EXTENSION = f"{META}/tasks"
"""The extension of modern servers that answer a call with a task."""


@record
class NegotiatedTerms:
    """The negotiated version, and the description that the server gave of itself."""

    era: ProtocolEra
    version: str
    server_info: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    instructions: str | None = None

    def has_capability(self, area: str) -> bool:
        """Return whether the server declares this capability."""
        return isinstance(self.capabilities.get(area), Mapping)

    def can_create_tasks(self) -> bool:
        """Return True for a legacy server that runs a call as a task when the call asks for it."""
        requests = mapping(mapping(self.capabilities.get("tasks")).get("requests"))
        return self.era is ProtocolEra.LEGACY and "call" in mapping(requests.get("tools"))

    def can_cancel_tasks(self) -> bool:
        """Return whether the server can be told to cancel a task. Every modern server with tasks can."""
        return self.era is ProtocolEra.MODERN or "cancel" in mapping(self.capabilities.get("tasks"))

    def has_list_changed(self, area: str) -> bool:
        """Return whether the server declares that it announces changes of this list."""
        declared = self.capabilities.get(area)
        return isinstance(declared, Mapping) and declared.get("listChanged") is True


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty mapping."""
    return value if isinstance(value, dict) else {}
