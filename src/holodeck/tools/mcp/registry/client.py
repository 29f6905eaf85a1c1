"""Requests to a registry, and snapshots of one in a file.

A registry is asked by its API, version 0.1: pages of a search, or one server. A snapshot is a JSON file with the same
listing. Bodies, pages and times are bounded. Failures raise `ConfigError` for an address or file that cannot be right,
and `ExecutionError` for a registry that does not answer as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from holodeck.lib.errors import ConfigError, ExecutionError, Problem
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MIB
from holodeck.lib.net.http1 import BodyTooLargeError
from holodeck.lib.net.http1_pool import failure_reason, send_once
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.record import record
from holodeck.lib.system.files import read_regular_file
from holodeck.models.url import url_problem
from holodeck.tools.mcp.registry.server_record import RegistryServer, parse_server

OFFICIAL_REGISTRY = "https://registry.modelcontextprotocol.io"
MAX_RESULTS = 100
# Seconds for one request: a registry answers from an index.
REQUEST_TIMEOUT = 20.0
# Bytes of one page: 100 servers with all their packages are far below.
_MAX_PAGE_BYTES = 8 * MIB
# Pages of one search. Further words narrow it.
_MAX_PAGES = 10
# Bytes of a snapshot: the official registry as a whole is below.
_MAX_SNAPSHOT_BYTES = 64 * MIB
_NOT_FOUND = 404
_OK = 200


@record
class Registry:
    """A registry: the URL of one, or the path of a snapshot."""

    place: str

    @property
    def is_url(self) -> bool:
        return self.place.lower().startswith(("https://", "http://"))

    async def search(self, words: Sequence[str], limit: int = MAX_RESULTS) -> list[RegistryServer]:
        """Return servers whose name or description has all words, at most `limit` of them. Older versions are left out.

        A registry compares the first word with names only.
        """
        if not self.is_url:
            return _select(self._read_snapshot(), words)[:limit]
        found: list[RegistryServer] = []
        cursor = ""
        for _ in range(_MAX_PAGES):
            query = {"limit": str(MAX_RESULTS), "version": "latest", **({"search": words[0]} if words else {})}
            query |= {"cursor": cursor} if cursor else {}
            page = await self._get(f"/v0.1/servers?{urlencode(query)}")
            found += _select(_parse_listing(page, self.place), words)
            cursor = _next_cursor(page)
            if not cursor or len(found) >= limit:
                break
        return found[:limit]

    async def find_server(self, name: str, version: str = "latest") -> RegistryServer | None:
        """Return one version of the server with exactly this name, or None."""
        if not self.is_url:
            named = [server for server in self._read_snapshot() if server.name == name]
            exact = [server for server in named if version in {server.version, "latest"}]
            return next((server for server in exact if server.is_latest), exact[-1] if exact else None)
        path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
        server = parse_server(await self._get(path))
        # A registry answers for the name that it was asked for, and for no other.
        return server if server is not None and server.name == name else None

    def _read_snapshot(self) -> list[RegistryServer]:
        try:
            data = read_regular_file(Path(self.place).expanduser(), _MAX_SNAPSHOT_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "bad name"
            raise _config_error(self.place, f"the snapshot cannot be read: {reason}") from None
        if len(data) > _MAX_SNAPSHOT_BYTES:
            raise _config_error(self.place, f"the snapshot is larger than {_MAX_SNAPSHOT_BYTES // MIB} MB")
        try:
            return _parse_listing(parse_json(data), self.place)
        except ValueError:
            raise _config_error(self.place, "the snapshot is not JSON of a registry") from None

    async def _get(self, path: str) -> Any:
        """Return the body of an answer, parsed; None for a 404."""
        url = self.place.rstrip("/") + path
        problem = url_problem(url)
        if problem:
            raise _config_error(self.place, problem.replace("'url'", "the address of a registry"))
        where, headers = shown_origin(url), {"Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT),
                send_once("GET", url, headers, connect_timeout=REQUEST_TIMEOUT, proxy=find_proxy(url)) as response,
            ):
                if response.status == _NOT_FOUND:
                    return None
                if response.status != _OK:
                    raise ExecutionError(f"The registry {where} answered with status {response.status}.")
                return parse_json(await response.read_all(_MAX_PAGE_BYTES))
        except TimeoutError:
            text = f"did not answer within {REQUEST_TIMEOUT:g} s"
        except BodyTooLargeError:
            text = f"sent more than {_MAX_PAGE_BYTES // MIB} MB"
        except ValueError:
            text = "answered with something other than JSON"
        except OSError as error:
            text = f"cannot be reached: {failure_reason(error)}"
        raise ExecutionError(f"The registry {where} {text}. A snapshot works without it: --registry FILE.")


def _parse_listing(page: Any, place: str) -> list[RegistryServer]:
    listed = page.get("servers") if isinstance(page, Mapping) else page
    if not isinstance(listed, list):
        raise ExecutionError(f"{shown_origin(place) if '://' in place else place} has no list of servers.")
    return [server for each in listed if (server := parse_server(each)) is not None]


def _next_cursor(page: Any) -> str:
    metadata = page.get("metadata") if isinstance(page, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    cursor = metadata.get("nextCursor") or metadata.get("next_cursor")
    return cursor if isinstance(cursor, str) else ""


def _select(servers: Sequence[RegistryServer], words: Sequence[str]) -> list[RegistryServer]:
    wanted = [word.lower() for word in words]
    return [
        server
        for server in servers
        if server.is_latest
        and server.status != "deleted"
        and all(word in f"{server.name} {server.description}".lower() for word in wanted)
    ]


def _config_error(place: str, message: str) -> ConfigError:
    return ConfigError.of([Problem(message=message, file=shown_origin(place) if "://" in place else place)])
