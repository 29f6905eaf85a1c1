"""The `read_resource` tool, which reads resources that results of tools have linked to.

A `ResourceReader` holds the links that results have named, each with the server that named it, and reads no other
resource. Nothing is read before the model asks for it. It holds at most `MAX_LINKS` links, the oldest being deleted
first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from holodeck.models.content import BinaryContent
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import READ_RESOURCE, CallTarget, ToolCall, ToolKind, ToolResult

# Links that can be read at a time; when there are more, the oldest is deleted.
MAX_LINKS = 1_000
# Longer URIs are not stored. Models do not repeat them without an error.
MAX_URI_CHARS = 4_096
# The name of the tool where a tool of a server or of the client has the usual one.
_OTHER_NAME = f"holodeck_{READ_RESOURCE}"
_DESCRIPTION = "Read a resource that a tool result links to. Give its URI exactly as the result has it."
_PARAMETERS = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "description": "The URI of the resource"},
        "server": {"type": "string", "description": "The server to read from, if several named this URI"},
    },
    "required": ["uri"],
}


class ResourceSource(Protocol):
    """Reads resources of servers, as an executor of their tools."""

    async def read_resource(self, server: str, uri: str, call: ToolCall) -> ToolResult: ...


class ResourceReader:
    """Executes `read_resource`, offered once a result has named a resource that can be read."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str, str], ResourceSource] = {}
        """By URI and server, the latest link last."""
        self._specs: tuple[ToolSpec, ...] = ()

    @property
    def kind(self) -> ToolKind:
        return ToolKind.BUILTIN

    async def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def can_execute(self, name: str) -> bool:
        return any(spec.name == name for spec in self._specs)

    def may_repeat(self, name: str) -> bool:
        """Reading changes nothing."""
        return self.can_execute(name)

    def add_links(
        self, links: Sequence[BinaryContent], server: str, source: ResourceSource, *, names: Collection[str]
    ) -> None:
        """Store the links of a result, to be read from `server`. `names`: the tools that are offered now."""
        for link in links:
            if link.uri and len(link.uri) <= MAX_URI_CHARS:
                self._sources.pop((link.uri, server), None)
                self._sources[link.uri, server] = source
        while len(self._sources) > MAX_LINKS:
            del self._sources[next(iter(self._sources))]
        if self._sources and not self._specs:
            name = _OTHER_NAME if READ_RESOURCE in names else READ_RESOURCE
            self._specs = (ToolSpec(name=name, description=_DESCRIPTION, parameters=_PARAMETERS),)

    def find_call_target(self, call: ToolCall) -> CallTarget | None:
        """The server that a resource is read from. None: the call does not name one resource of one server."""
        servers = list(self._find_sources(call))
        return CallTarget(server=servers[0], tool=READ_RESOURCE) if len(servers) == 1 else None

    async def execute(self, call: ToolCall) -> ToolResult:
        sources = self._find_sources(call)
        if not sources:
            reason = "No tool result has linked to this URI, so it cannot be read. Give a URI as a result has it."
            return ToolResult.failure(call.call_id, reason)
        if len(sources) > 1:
            reason = f"Several servers have linked to this URI: {', '.join(sources)}. Say which one with 'server'."
            return ToolResult.failure(call.call_id, reason)
        ((server, source),) = sources.items()
        return await source.read_resource(server, str(call.arguments["uri"]), call)

    def _find_sources(self, call: ToolCall) -> dict[str, ResourceSource]:
        """By server, the sources of the resource that a call names."""
        uri, wanted = call.arguments.get("uri"), call.arguments.get("server")
        return {
            server: source
            for (linked, server), source in self._sources.items()
            if linked == uri and wanted in (None, "", server)
        }
