"""How the failure of a server is put into words: which server, in which phase, what happened; never a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError
from holodeck.lib.limits import MAX_RAW_SHOWN
from holodeck.lib.redaction import OPERATOR_SECRETS, SecretText
from holodeck.lib.secret import Secret
from holodeck.lib.shortage import WHAT, is_short
from holodeck.lib.unreachable import why_unreachable
from holodeck.lib.urls import shown_origin

OVER_BUDGET = "its answer was dropped: too many bytes of requests and answers are in memory at once."
OUTCOME_UNKNOWN = "It is not known whether the call took effect."
_SHORTEST_MASKED = 4  # a shorter secret would mask half of every message, and hides nothing
_MOST_TOKENS = 4  # the one in use, and those it replaced while calls were under way

E = TypeVar("E", bound=MCPError)


class Faults:
    """Makes the errors of one server, and keeps secrets out of them and out of what the server sends."""

    def __init__(
        self,
        server: str,
        secrets: Iterable[Secret] = (),
        *,
        credentials: Iterable[str] = (),
        is_heard: bool = True,
        is_foreign: bool = False,
        tells_causes: bool = True,
    ) -> None:
        """`secrets` are masked in errors, `credentials` also in the server's messages.

        `is_heard`: what the server logs goes into our log. `is_foreign`: it is a caller's own server, and does not find
        out from a mask what the operator's secrets are. `tells_causes`: whoever gets a failed call operates the server.
        """
        self.server = server
        self.is_heard = is_heard
        self._tells_causes = tells_causes
        own = SecretText(credentials)
        self._tokens = SecretText(most=_MOST_TOKENS)
        self._in_messages = (own, self._tokens) if is_foreign else (own, self._tokens, OPERATOR_SECRETS)
        self._in_errors = SecretText((secret.reveal() for secret in secrets), shortest=_SHORTEST_MASKED)

    def connection(self, phase: str, text: str, **details: Any) -> MCPConnectionError:
        return self.make(MCPConnectionError, phase, text, **details)

    def timeout(self, phase: str, text: str, **details: Any) -> MCPTimeoutError:
        return self.make(MCPTimeoutError, phase, text, **details)

    def unreachable(self, url: str, error: OSError) -> MCPConnectionError:
        if is_short(error):
            return self.no_room("connect")
        text = f"{shown_origin(url)} cannot be reached: {why_unreachable(error)}. Is the server running?"
        return self.connection("connect", text, url=shown_origin(url))

    def no_room(self, phase: str) -> MCPConnectionError:
        """It is we who could not."""
        return self.connection(
            phase, f"it was not tried: {WHAT}. Try again in a moment.", shortage=True, is_public=True
        )

    def over_budget(self, phase: str) -> MCPProtocolError:
        """The server has answered, and there is no memory for it. No connection error: a repetition would not help."""
        unknown = f" {OUTCOME_UNKNOWN}" if phase == "call" else ""
        return self.protocol(phase, f"{OVER_BUDGET}{unknown} Ask for less, or try again later.", is_public=True)

    def protocol(self, phase: str, text: str, **details: Any) -> MCPProtocolError:
        return self.make(MCPProtocolError, phase, text, **details)

    def make(self, kind: type[E], phase: str, text: str, **details: Any) -> E:
        known = {key: value for key, value in details.items() if value is not None}
        message = f"Server '{self.server}' ({phase}): {self.masked(text)}"
        return kind(message, server=self.server, phase=phase, details=known)

    def explain(self, error: MCPError) -> str:
        """What of an error its caller is told: all of it, or only that there was one, when the operator is another."""
        return str(error) if self._tells_causes else error.public_text

    def learn_token(self, headers: Mapping[str, str]) -> None:
        """Mask the token of these headers from now on; it may be a new one with each request."""
        for name, value in headers.items():
            if name.lower() == "authorization":
                self._tokens.add(value.rpartition(" ")[2])

    def without_secrets(self, message: Any, raw: bytes | bytearray) -> Any:
        """A message as it may be shown and given to a model. `raw`: what it was read from."""
        for secrets in self._in_messages:
            if secrets.is_in(raw):
                message = secrets.mask_message(message)
        return message

    def masked(self, text: str) -> str:
        """Text from outside, without the secrets that we gave to the other side."""
        for secrets in (self._in_errors, *self._in_messages):
            text = secrets.masked(text)
        return text

    def excerpt(self, raw: bytes | bytearray | str, limit: int = MAX_RAW_SHOWN) -> str:
        """The beginning of what came, masked, for a person to recognise."""
        text = raw if isinstance(raw, str) else raw[: limit * 4 + 1024].decode("utf-8", "replace")
        text = self.masked(text.strip())
        return text if len(text) <= limit else text[:limit] + "..."
