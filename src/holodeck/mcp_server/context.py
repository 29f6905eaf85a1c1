"""One request of a client, as its handler and the servers behind it see it.

`RequestContext` is the peer of all calls that are made for the request. What servers tell or ask while they work goes
to the client through it: notifications by `send`, questions by `ask`. Both are given by the transport and the era.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holodeck.mcp_server.view import View
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message
from holodeck.tools.mcp.protocol.peer import (
    ELICITATION_METHOD,
    ROOTS_METHOD,
    SAMPLING_METHOD,
    Params,
    RefusalError,
)
from holodeck.tools.mcp.protocol.server_log import is_logged_at
from holodeck.tools.mcp.protocol.versions import META, ProtocolEra, mapping

Send = Callable[[Message], None]
"""Sends a message to the client, if it can still be reached. Does not block."""
Ask = Callable[[str, Params, str], Awaitable[Mapping[str, Any]]]
"""Sends a request to the client and returns its result: method, parameters, key. Raises RefusalError."""

_CAPABILITIES = {ELICITATION_METHOD: "elicitation", SAMPLING_METHOD: "sampling", ROOTS_METHOD: "roots"}
# What a client says in `_meta` to this program, and not to the servers behind.
_OWN_META = ("progressToken", f"{META}/", "holodeck/", "dev.holodeck/")
# The ways in which a client can be asked something.
_MODES = ("form", "url")


def select_capabilities(declared: object) -> dict[str, dict[str, Any]]:
    """Return what matters here of the capabilities of a client: a session keeps them, and they may be of any size."""
    found = {name: value for name, value in mapping(declared).items() if name in _CAPABILITIES.values()}
    return {
        name: {mode: {} for mode in _MODES if mode in value} for name, value in found.items() if isinstance(value, dict)
    }


async def refuse_question(method: str, params: Params, key: str) -> Mapping[str, Any]:
    """Return an `Ask` for clients that cannot be reached."""
    raise RefusalError(INTERNAL_ERROR, f"The client cannot be asked for {method} here")


class RequestContext:
    """A request with the client that sent it. A `Peer` of the servers behind."""

    def __init__(
        self,
        view: View,
        *,
        era: ProtocolEra,
        capabilities: Mapping[str, Any],
        params: Params,
        send: Send,
        ask: Ask = refuse_question,
        log_level: str | None = None,
        client: object = None,
    ) -> None:
        """`capabilities`: those of the client. `params`: of the request, which may have a progress token.

        `client`: see `Peer`. None: this request stands for itself.
        """
        self.view = view
        self._client = self if client is None else client
        self.era = era
        self._capabilities = capabilities
        self._meta = mapping(params.get("_meta"))
        self._progress_token = self._meta.get("progressToken")
        self._send = send
        self._ask = ask
        self._log_level = log_level
        self._latest_progress: float | None = None

    @property
    def client(self) -> object:
        return self._client

    @property
    def log_level(self) -> str | None:
        return self._log_level

    @property
    def meta(self) -> Mapping[str, Any]:
        # What the protocol and this program define is said anew to each server.
        return {key: value for key, value in self._meta.items() if not key.startswith(_OWN_META)}

    @property
    def has_progress(self) -> bool:
        """Whether the client wants to know about progress."""
        return isinstance(self._progress_token, int | str)

    def can_answer(self, method: str, params: Params) -> bool:
        declared = self._capabilities.get(_CAPABILITIES.get(method, ""))
        if not isinstance(declared, Mapping):
            return False
        if method != ELICITATION_METHOD:
            return True
        if params.get("mode") == "url":
            return "url" in declared
        # Before there were two modes, an empty object declared forms.
        return "form" in declared or "url" not in declared

    async def ask(self, method: str, params: Params, key: str = "") -> Mapping[str, Any]:
        return await self._ask(method, params, key)

    def notify(self, method: str, params: Params) -> None:
        if method == "notifications/message" and (
            self._log_level is None or not is_logged_at(params.get("level"), self._log_level)
        ):
            return
        self._send({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    def report_progress(self, progress: float | None, total: float | None = None, message: str | None = None) -> None:
        """Tell the client about progress, if it wants to know. A report that is not further than the last is dropped.

        The protocol requires that progress increases; servers behind do not always keep to it. None, as the state of a
        task has it, counts as one further.
        """
        if progress is None:
            progress = (self._latest_progress or 0) + 1
        if not self.has_progress or (self._latest_progress is not None and progress <= self._latest_progress):
            return
        self._latest_progress = progress
        params: dict[str, Any] = {"progressToken": self._progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
