"""The `read_resource` tool, which reads resources of servers.

A `ResourceReader` reads two kinds of resources and no others: those that results of tools have linked to, from the
server that linked to them, and those that a server lists or has a template for, if its definition permits that
(`load_resources`). Nothing is read before the model asks for it. It holds at most `MAX_LINKS` links, the oldest being
deleted first.

The description of the tool names the first resources of the servers. It is made once for a set of servers and does not
follow changes of their lists: a description that changes costs the prompt cache of the model. A call without a URI
returns the current lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from holodeck.lib import log
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.net.uri_template import match_template
from holodeck.lib.record import record
from holodeck.models.items import BinaryContent, TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import (
    READ_RESOURCE,
    CallRules,
    CallTarget,
    TargetKind,
    ToolCall,
    ToolExecutor,
    ToolKind,
    ToolResult,
)

# Links that can be read at a time; when there are more, the oldest is deleted.
MAX_LINKS = 1_000
# Longer URIs are not stored. Models do not repeat them without an error.
MAX_URI_CHARS = 4_096
# Seconds that the first turn of a run waits for the lists. A server that is late is offered without its list.
OFFER_TIMEOUT = 5.0
# Resources of all servers that the description names, and the characters of each: about 400 tokens in every request.
MAX_DESCRIBED = 12
MAX_DESCRIBED_CHARS = 140
# Resources of one server that a call without a URI lists. The text is cut further, like every long result.
MAX_LISTED = 1_000
# Characters of the words about a resource in that list.
_MAX_ABOUT_CHARS = 200
# The name of the tool where a tool of a server or of the client has the usual one.
_OTHER_NAME = f"holodeck_{READ_RESOURCE}"
_LINKS_DESCRIPTION = "Read a resource that a tool result links to. Give its URI exactly as the result has it."
_SERVERS_DESCRIPTION = (
    "Read a resource of a server, or one that a tool result links to, by its exact URI. "
    "Fill in the variables of a URI in braces. Without 'uri' it lists the resources."
)
_PROPERTIES = {
    "uri": {"type": "string", "description": "The URI of the resource"},
    "server": {"type": "string", "description": "The server to read from, if several named this URI"},
}
_LINKS_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": ["uri"]}
_SERVERS_PARAMETERS = {"type": "object", "properties": _PROPERTIES}


@record
class ResourceEntry:
    """A resource, or a template of URIs, in the list of a server."""

    uri: str
    name: str
    description: str = ""
    is_template: bool = False

    @property
    def shown_uri(self) -> str:
        """The URI as models see it: without invisible characters."""
        return escape_unprintable(self.uri)

    def find_uri(self, requested: str) -> str | None:
        """Return the URI to read for one that a model gives; None if it is not of this entry."""
        if self.is_template:
            return requested if match_template(self.uri, requested) is not None else None
        return self.uri if requested in (self.uri, self.shown_uri) else None

    def describe(self, limit: int) -> str:
        """Return the URI, and as much about the resource as fits into the limit."""
        name = "" if self.name in self.shown_uri else self.name
        about = one_line(": ".join(text for text in (name, self.description) if text), max(limit, 0))
        return f"{self.shown_uri} ({about})" if about else self.shown_uri


class ResourceSource(Protocol):
    """Reads resources of servers, as an executor of their tools."""

    async def read_resource(self, server: str, uri: str, call: ToolCall) -> ToolResult: ...


class BrowsableSource(ResourceSource, Protocol):
    """Also lists the resources of servers that permit it."""

    def browsable_servers(self) -> tuple[str, ...]:
        """Return the servers whose resources may be read and that are available now."""
        ...

    async def list_resources(self, server: str) -> Sequence[ResourceEntry] | None:
        """Return the resources and templates of one of these servers; None if it fails."""
        ...


class ResourceReader(ToolExecutor):
    """Executes `read_resource`, offered once there is a resource that can be read."""

    def __init__(self, source: BrowsableSource | None = None) -> None:
        """`source`: lists the resources of servers. None: only linked resources are read."""
        self._browsable = source
        self._described_servers: tuple[str, ...] = ()
        self._listed: dict[str, Sequence[ResourceEntry]] = {}
        """By server, the latest list that was fetched here."""
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
        """Return True for the tool of this executor: reading changes nothing."""
        return self.can_execute(name)

    def has_new_servers(self) -> bool:
        """Return whether `offer_servers` would change the tool."""
        servers = self._browsable.browsable_servers() if self._browsable is not None else ()
        return bool(servers) and not set(servers).issubset(self._described_servers)

    async def offer_servers(self, *, names: Collection[str]) -> None:
        """Offer the resources of the servers that are available now. `names`: the other tools that are offered."""
        if self._browsable is None:
            return
        servers = self._browsable.browsable_servers()
        # A server that is away for a moment stays in the description, which would change twice otherwise.
        self._described_servers = tuple(dict.fromkeys((*self._described_servers, *servers)))
        lists = await asyncio.gather(*(self._fetch_shortly(self._browsable, server) for server in servers))
        listed = {server: entries for server, entries in zip(servers, lists, strict=True) if entries != ()}
        if listed:
            self._offer(_describe_servers(listed), _SERVERS_PARAMETERS, names)

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
            self._offer(_LINKS_DESCRIPTION, _LINKS_PARAMETERS, names)

    def find_rules(self, call: ToolCall) -> CallRules:
        """Return the server that a resource is read from, if the call names one resource of one known server."""
        servers = list(self._find_sources(call))
        if len(servers) != 1:
            return CallRules(target=CallTarget(server="", tool=call.name))
        is_linked = (str(call.arguments.get("uri")), servers[0]) in self._sources
        kind = TargetKind.LINK if is_linked else TargetKind.RESOURCE
        return CallRules(target=CallTarget(server=servers[0], tool=READ_RESOURCE, kind=kind))

    async def execute(self, call: ToolCall) -> ToolResult:
        wanted = str(call.arguments.get("server") or "")
        if not call.arguments.get("uri"):
            return await self._list_resources(call, wanted)
        found = self._find_sources(call)
        if not found and self._browsable is not None:
            # It may be new.
            for server in self._browsable.browsable_servers():
                await self._fetch(self._browsable, server)
            found = self._find_sources(call)
        if not found:
            return ToolResult.failure(call.call_id, self._unknown_text(wanted))
        if len(found) > 1:
            reason = f"Several servers have this URI: {', '.join(found)}. Say which one with 'server'."
            return ToolResult.failure(call.call_id, reason)
        ((server, (source, exact)),) = found.items()
        return await source.read_resource(server, exact, call)

    def _offer(self, description: str, parameters: Mapping[str, object], names: Collection[str]) -> None:
        name = self._specs[0].name if self._specs else _OTHER_NAME if READ_RESOURCE in names else READ_RESOURCE
        self._specs = (ToolSpec(name=name, description=description, parameters=parameters),)

    def _find_sources(self, call: ToolCall) -> dict[str, tuple[ResourceSource, str]]:
        """Return by server what can read the resource of a call, and its URI as the server knows it.

        What a result has linked to is read from the server that linked to it.
        """
        uri, wanted = str(call.arguments.get("uri") or ""), str(call.arguments.get("server") or "")
        found = {
            server: (source, uri)
            for (linked, server), source in self._sources.items()
            if linked == uri and wanted in ("", server)
        }
        if found or self._browsable is None:
            return found
        for server in self._browsable.browsable_servers():
            entries = self._listed.get(server, ()) if wanted in ("", server) else ()
            exact = next((known for entry in entries if (known := entry.find_uri(uri)) is not None), None)
            if exact is not None:
                found[server] = (self._browsable, exact)
        return found

    async def _fetch(self, source: BrowsableSource, server: str) -> Sequence[ResourceEntry] | None:
        entries = await source.list_resources(server)
        if entries is not None:
            self._listed[server] = entries
        return entries

    async def _fetch_shortly(self, source: BrowsableSource, server: str) -> Sequence[ResourceEntry] | None:
        try:
            async with asyncio.timeout(OFFER_TIMEOUT):
                return await self._fetch(source, server)
        except TimeoutError:
            log.warning("tools.resources_late", server=server, seconds=OFFER_TIMEOUT)
            return None

    async def _list_resources(self, call: ToolCall, wanted: str) -> ToolResult:
        servers = self._browsable.browsable_servers() if self._browsable is not None else ()
        if self._browsable is None or not servers:
            return ToolResult.failure(call.call_id, "Give the 'uri' of a resource that a tool result links to.")
        chosen = [server for server in servers if wanted in ("", server)]
        if not chosen:
            shown = one_line(wanted, MAX_SHOWN_CHARS)
            return ToolResult.failure(call.call_id, f"There is no server '{shown}'. There are: {', '.join(servers)}.")
        lines: list[str] = []
        for server in chosen:
            entries = await self._fetch(self._browsable, server)
            if entries is None:
                lines.append(f"{server}: it cannot list its resources at this moment")
                continue
            lines.append(f"{server}: {_count_text(len(entries))}")
            lines += [f"- {entry.describe(_MAX_ABOUT_CHARS)}" for entry in entries[:MAX_LISTED]]
            if len(entries) > MAX_LISTED:
                lines.append(f"({len(entries) - MAX_LISTED} more are not listed)")
        return ToolResult(call_id=call.call_id, content=(TextContent(text="\n".join(lines)),))

    def _unknown_text(self, wanted: str) -> str:
        servers = self._browsable.browsable_servers() if self._browsable is not None else ()
        if servers:
            which = f" at server '{one_line(wanted, MAX_SHOWN_CHARS)}'" if wanted else ""
            hint = f"Call this tool without 'uri' to see which there are at: {', '.join(servers)}."
            return f"There is no resource with this URI{which}. {hint}"
        return "No tool result has linked to this URI, so it cannot be read. Give a URI as a result has it."


def _describe_servers(listed: Mapping[str, Sequence[ResourceEntry] | None]) -> str:
    lines = [_SERVERS_DESCRIPTION]
    share = max(MAX_DESCRIBED // len(listed), 1)
    for server, entries in listed.items():
        if entries is None:
            lines.append(f"Server '{server}'")
            continue
        # A template stands for many resources, so that it comes first.
        ordered = sorted(entries, key=lambda entry: not entry.is_template)
        usable = [entry for entry in ordered[:share] if len(entry.shown_uri) <= MAX_DESCRIBED_CHARS]
        which = ":" if len(usable) == len(entries) else f", {len(usable)} of them:"
        lines.append(f"Server '{server}', {_count_text(len(entries))}{which}")
        lines += [f"- {entry.describe(MAX_DESCRIBED_CHARS - len(entry.shown_uri))}" for entry in usable]
    return "\n".join(lines)


def _count_text(count: int) -> str:
    return "1 resource" if count == 1 else f"{count} resources"
