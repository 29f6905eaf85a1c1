"""The client in front of a call, where this program is itself an MCP server.

A server may ask something while it works on a call: a question to a person (elicitation), a completion of a model
(sampling), the folders that it may use (roots). The peer of a call passes such a request on to the client that made the
call. Calls that this program makes for itself have no peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Params = Mapping[str, Any]

ROOTS_METHOD = "roots/list"
SAMPLING_METHOD = "sampling/createMessage"
ELICITATION_METHOD = "elicitation/create"


class RefusalError(RuntimeError):
    """A request of a server is refused. The code, the text and the data are sent to the server."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Peer(Protocol):
    """One client in front, as the servers behind may reach it."""

    @property
    def client(self) -> object:
        """Identifies the client: the same object for all of its calls whose questions may be asked with each other."""
        ...

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the client wants; None for none."""
        ...

    @property
    def meta(self) -> Mapping[str, Any]:
        """`_meta` of the client's own request, such as its trace context, which the server gets with the call."""
        ...

    def can_answer(self, method: str, params: Params) -> bool:
        """Return whether the client has declared that it answers this request. `params` may be empty."""
        ...

    async def ask(self, method: str, params: Params, key: str = "") -> Mapping[str, Any]:
        """Return the client's answer to a request of a server. Raises RefusalError, also where it cannot be reached.

        `key`: the server's own name of the question, if it has one.
        """
        ...

    def notify(self, method: str, params: Params) -> None:
        """Pass on a notification of a server. Does not block; it is dropped where the client cannot be reached."""
        ...
