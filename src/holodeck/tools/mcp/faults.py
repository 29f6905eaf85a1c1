"""How the failure of a server is put into words: which server, in which phase, what happened; never a secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError
from holodeck.lib.limits import MAX_RAW_SHOWN
from holodeck.lib.secret import MASK, Secret
from holodeck.lib.shortage import WHAT, is_short
from holodeck.lib.unreachable import why_unreachable

OVER_BUDGET = "its answer was dropped: too many bytes of requests and answers are in memory at once."
OUTCOME_UNKNOWN = "It is not known whether the call took effect."
_SHORTEST_MASKED = 4  # a shorter secret would mask half of every message, and hides nothing

E = TypeVar("E", bound=MCPError)


class Faults:
    """Makes the errors of one server."""

    def __init__(self, server: str, secrets: Iterable[Secret] = (), *, is_heard: bool = True) -> None:
        """`is_heard`: what the server logs goes into our log."""
        self.server = server
        self.is_heard = is_heard
        values = {secret.reveal() for secret in secrets}
        self._secrets = sorted((value for value in values if len(value) >= _SHORTEST_MASKED), key=len, reverse=True)

    def connection(self, phase: str, text: str, **details: Any) -> MCPConnectionError:
        return self.make(MCPConnectionError, phase, text, **details)

    def timeout(self, phase: str, text: str, **details: Any) -> MCPTimeoutError:
        return self.make(MCPTimeoutError, phase, text, **details)

    def unreachable(self, url: str, error: OSError) -> MCPConnectionError:
        if is_short(error):
            return self.no_room("connect")
        text = f"{url} cannot be reached: {why_unreachable(error)}. Is the server running?"
        return self.connection("connect", text, url=url)

    def no_room(self, phase: str) -> MCPConnectionError:
        """It is we who could not."""
        return self.connection(phase, f"it was not tried: {WHAT}. Try again in a moment.", shortage=True)

    def over_budget(self, phase: str) -> MCPProtocolError:
        """The server has answered, and there is no memory for it. No connection error: a repetition would not help."""
        unknown = f" {OUTCOME_UNKNOWN}" if phase == "call" else ""
        return self.protocol(phase, f"{OVER_BUDGET}{unknown} Ask for less, or try again later.", over_budget=True)

    def protocol(self, phase: str, text: str, **details: Any) -> MCPProtocolError:
        return self.make(MCPProtocolError, phase, text, **details)

    def make(self, kind: type[E], phase: str, text: str, **details: Any) -> E:
        known = {key: value for key, value in details.items() if value is not None}
        message = f"Server '{self.server}' ({phase}): {self.masked(text)}"
        return kind(message, server=self.server, phase=phase, details=known)

    def masked(self, text: str) -> str:
        """Text from outside, without the secrets that we gave to the other side."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def excerpt(self, raw: bytes | bytearray | str, limit: int = MAX_RAW_SHOWN) -> str:
        """The beginning of what came, masked, for a person to recognise."""
        text = raw if isinstance(raw, str) else raw[: limit * 4 + 1024].decode("utf-8", "replace")
        text = self.masked(text.strip())
        return text if len(text) <= limit else text[:limit] + "..."
