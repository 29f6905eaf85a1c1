"""The MCP errors, where people look for them. They are defined with all the others in `holodeck.lib.errors`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from holodeck.lib.errors import (
    MCPConfigError,
    MCPConnectionError,
    MCPError,
    MCPProtocolError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)
from holodeck.lib.limits import MAX_RAW_SHOWN
from holodeck.lib.net.tls import unreachable_reason
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.redaction import OPERATOR_SECRETS, SecretText
from holodeck.lib.secret import Secret
from holodeck.lib.system.fd_shortage import SHORTAGE_TEXT, is_file_shortage

__all__ = [
    "MCPConfigError",
    "MCPConnectionError",
    "MCPError",
    "MCPProtocolError",
    "MCPTimeoutError",
    "MCPToolNotFoundError",
]


OVER_BUDGET = "its answer was dropped: too many bytes of requests and answers are in memory at once."
OUTCOME_UNKNOWN = "It is not known whether the call took effect."
_MIN_MASKED_CHARS = 4  # a shorter secret would mask half of every message, and hides nothing
_MAX_TOKENS = 4  # the one in use, and those it replaced while calls were under way

E = TypeVar("E", bound=MCPError)


class ErrorFactory:
    """Makes the errors of one server, and keeps secrets out of them and out of what the server sends."""

    def __init__(
        self,
        server: str,
        secrets: Iterable[Secret] = (),
        *,
        credentials: Iterable[str] = (),
        is_server_logged: bool = True,
        is_request_declared: bool = False,
        may_expose_causes: bool = True,
    ) -> None:
        """`secrets` are masked in errors, `credentials` also in the server's messages.

        `is_server_logged`: what the server logs goes into our log. `is_request_declared`: it is a caller's own server,
        and does not find
        out from a mask what the operator's secrets are. `may_expose_causes`: whoever gets a failed call operates the
        server.
        """
        self.server = server
        self.is_server_logged = is_server_logged
        self._may_expose_causes = may_expose_causes
        own = SecretText(credentials)
        self._tokens = SecretText(max_values=_MAX_TOKENS)
        self._message_secrets = (own, self._tokens) if is_request_declared else (own, self._tokens, OPERATOR_SECRETS)
        self._error_secrets = SecretText((secret.reveal() for secret in secrets), min_chars=_MIN_MASKED_CHARS)

    def connection(self, phase: str, text: str, **details: Any) -> MCPConnectionError:
        return self.build(MCPConnectionError, phase, text, **details)

    def timeout(self, phase: str, text: str, **details: Any) -> MCPTimeoutError:
        return self.build(MCPTimeoutError, phase, text, **details)

    def unreachable(self, url: str, error: OSError) -> MCPConnectionError:
        if is_file_shortage(error):
            return self.out_of_files("connect")
        text = f"{shown_origin(url)} cannot be reached: {unreachable_reason(error)}. Is the server running?"
        return self.connection("connect", text, url=shown_origin(url))

    def out_of_files(self, phase: str) -> MCPConnectionError:
        """It is we who could not."""
        return self.connection(
            phase, f"it was not tried: {SHORTAGE_TEXT}. Try again in a moment.", shortage=True, is_public=True
        )

    def over_budget(self, phase: str) -> MCPProtocolError:
        """The server has answered, and there is no memory for it. No connection error: a repetition would not help."""
        unknown = f" {OUTCOME_UNKNOWN}" if phase == "call" else ""
        return self.protocol(phase, f"{OVER_BUDGET}{unknown} Ask for less, or try again later.", is_public=True)

    def protocol(self, phase: str, text: str, **details: Any) -> MCPProtocolError:
        return self.build(MCPProtocolError, phase, text, **details)

    def build(self, kind: type[E], phase: str, text: str, **details: Any) -> E:
        known = {key: value for key, value in details.items() if value is not None}
        message = f"Server '{self.server}' ({phase}): {self.mask(text)}"
        return kind(message, server=self.server, phase=phase, details=known)

    def explain(self, error: MCPError) -> str:
        """What of an error its caller is told: all of it, or only that there was one, when the operator is another."""
        return str(error) if self._may_expose_causes else error.public_text

    def learn_token(self, headers: Mapping[str, str]) -> None:
        """Mask the token of these headers from now on; it may be a new one with each request."""
        for name, value in headers.items():
            if name.lower() == "authorization":
                self._tokens.add(value.rpartition(" ")[2])

    def mask_message(self, message: Any, raw: bytes | bytearray) -> Any:
        """A message as it may be shown and given to a model. `raw`: what it was read from."""
        for secrets in self._message_secrets:
            if secrets.may_be_in(raw):
                message = secrets.mask_message(message)
        return message

    def mask(self, text: str) -> str:
        """Text from outside, without the secrets that we gave to the other side."""
        for secrets in (self._error_secrets, *self._message_secrets):
            text = secrets.mask(text)
        return text

    def excerpt(self, raw: bytes | bytearray | str, limit: int = MAX_RAW_SHOWN) -> str:
        """The beginning of what came, masked, for a person to recognise."""
        text = raw if isinstance(raw, str) else raw[: limit * 4 + 1024].decode("utf-8", "replace")
        text = self.mask(text.strip())
        return text if len(text) <= limit else text[:limit] + "..."
