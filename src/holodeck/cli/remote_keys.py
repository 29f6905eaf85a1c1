"""The keys and the callers of a gateway that runs, at its URL, with the key of an operator from the environment.

Raises `ConfigError` for an address or a key that cannot be used, and `ExecutionError` with the gateway's own words for
what it refuses.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MIB
from holodeck.lib.net.http1 import BodyTooLargeError, HTTP1Response
from holodeck.lib.net.http1_pool import failure_reason, send_once
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.urls import shown_origin
from holodeck.models.url import url_problem

# Seconds for one request. A gateway answers within milliseconds; one that erases a caller may wait 30 seconds for
# others.
_REQUEST_SECONDS = 45.0
# Of one reply: far more than a page of keys.
_MAX_REPLY_BYTES = 8 * MIB
_OK = 200
# Keys of one page, as many as a gateway gives at once.
_PAGE_KEYS = 100


class RemoteGateway:
    """The gateway at a URL, as an operator uses it."""

    applied = "It is in force at every gateway within a second."

    def __init__(self, url: str) -> None:
        problem = url_problem(url)
        if problem is not None:
            raise ConfigError(problem.replace("'url'", "--url"))
        self._base = url.rstrip("/").removesuffix("/v1")
        self.shown = shown_origin(url)
        """The gateway, for messages."""
        self._key = os.environ.get("HOLODECK_OPERATOR_KEY", "")
        if not self._key:
            raise ConfigError("--url needs the key of an operator in the variable HOLODECK_OPERATOR_KEY.")

    async def _list_pages(self, path: str, query: dict[str, str], id_field: str) -> list[dict[str, Any]]:
        """Return what a list of the gateway has, page by page. `id_field`: of an entry, for the page after it."""
        entries: list[dict[str, Any]] = []
        query = {"limit": str(_PAGE_KEYS), **query}
        while True:
            page = await self._request("GET", f"{path}?{urlencode(query)}", None)
            entries += page["data"]
            if not page["has_more"]:
                return entries
            query["after"] = entries[-1][id_field]

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        async with self._send(method, path, body) as response:
            return parse_json(await response.read_all(_MAX_REPLY_BYTES))

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float | None = _REQUEST_SECONDS
    ) -> AsyncIterator[HTTP1Response]:
        """Send a request, and yield its response if it is not refused. Raises `ExecutionError`.

        `seconds`: for all of it. None: what reads the response has a timeout of its own.
        """
        url = f"{self._base}{path}"
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        proxy = find_proxy(url)
        try:
            async with (
                asyncio.timeout(seconds),
                send_once(method, url, headers, data, connect_timeout=_REQUEST_SECONDS, proxy=proxy) as response,
            ):
                if response.status != _OK:
                    reply = parse_json(await response.read_all(_MAX_REPLY_BYTES))
                    raise ExecutionError(f"{self.shown}: {_find_message(reply, response.status)}")
                yield response
                return
        except TimeoutError:
            text = f"did not answer within {_REQUEST_SECONDS:g} s"
        except BodyTooLargeError:
            text = f"sent more than {_MAX_REPLY_BYTES // MIB} MB"
        except ValueError:
            text = "answered with something other than JSON, so it is no gateway of HoloDeck"
        except OSError as error:
            text = f"cannot be reached: {failure_reason(error)}"
        raise ExecutionError(f"{self.shown} {text}.")


class RemoteKeys(RemoteGateway):
    """The keys of the gateway at a URL. Entries are resources of `/v1/keys`."""

    def list_entries(self) -> list[dict[str, Any]]:
        """Return all keys, page by page."""
        return list(asyncio.run(self._list_entries("")))

    def create(self, name: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Make a key. Returns it with its entry."""
        return _split_key(self._post("/v1/keys", {"name": name, **settings}))

    def update(self, name: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
        """Change the settings of a key, and return its entry. `change` takes the entry, and returns what becomes
        other."""
        found = asyncio.run(self._list_entries(name))
        # Of two with this name, the one of the store, which is the one that the gateway changes.
        entry: Mapping[str, Any] = next((each for each in reversed(found) if each["name"] == name), {})
        updated: dict[str, Any] = self._post("/v1/keys/update", {"name": name, **change(entry)})
        return updated

    def rotate(self, name: str, grace: timedelta | None) -> tuple[str, dict[str, Any]]:
        """Replace a key. Returns the new one with its entry."""
        grace_seconds = None if grace is None else int(grace.total_seconds())
        return _split_key(self._post("/v1/keys/rotate", {"name": name, "grace_seconds": grace_seconds}))

    def remove(self, name: str) -> None:
        asyncio.run(self._request("DELETE", f"/v1/keys/{quote(name)}", None))

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        return asyncio.run(self._request("POST", path, body))

    async def _list_entries(self, text: str) -> list[dict[str, Any]]:
        return await self._list_pages("/v1/keys", {"text": text} if text else {}, "caller_id")


class RemoteCallers(RemoteGateway):
    """The callers of the gateway at a URL. Entries are resources of `/v1/callers`."""

    def list_entries(self, text: str) -> list[dict[str, Any]]:
        """Return the callers whose ids have a text in them, page by page."""
        return asyncio.run(self._list_pages("/v1/callers", {"text": text} if text else {}, "id"))

    def set_paused(self, caller: str, *, is_paused: bool) -> dict[str, Any]:
        path = f"{_path_of(caller)}/{'pause' if is_paused else 'resume'}"
        paused: dict[str, Any] = asyncio.run(self._request("POST", path, {}))
        return paused

    def erase(self, caller: str) -> dict[str, Any]:
        erased: dict[str, Any] = asyncio.run(self._request("DELETE", _path_of(caller), None))
        return erased

    def export(self, caller: str, write: Callable[[bytes], object]) -> None:
        """Write what is stored of a caller, as it comes."""
        asyncio.run(self._export(caller, write))

    async def _export(self, caller: str, write: Callable[[bytes], object]) -> None:
        async with self._send("GET", f"{_path_of(caller)}/export", None, None) as response:
            while data := await response.read(_REQUEST_SECONDS):
                write(data)


def _path_of(caller: str) -> str:
    return f"/v1/callers/{quote(caller)}"


def _find_message(reply: Any, status: int) -> str:
    error = reply.get("error") if isinstance(reply, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else f"it answered with status {status}"


def _split_key(made: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the key of a reply, and its entry without it."""
    entry = dict(made)
    key: str = entry.pop("key")
    return key, entry
