"""Builds the errors of one MCP server, and masks secrets in them and in the messages of the server.

The error classes are defined with all others in `holodeck.lib.errors` and are public here as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from holodeck.lib.call_errors import OUTCOME_UNKNOWN
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
# The last line of a Python program that imports what a newer package does not have.
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)
_OLD_IMPORT = re.compile(r"No module named 'mcp\.|cannot import name '[^']+' from 'mcp['.]")
_PYTHON = re.compile(r"python[0-9.]*")
_SERVER_PACKAGES = frozenset({"mcp", "fastmcp"})
# Characters of a secret that is masked in errors: a shorter one occurs by chance in every message.
_MIN_MASKED_CHARS = 4
# Access tokens that are masked: the one in use, and those that it replaced while calls were in flight.
_MAX_TOKENS = 4

E = TypeVar("E", bound=MCPError)


def describe_output(stray: str, stderr: str) -> str:
    """Return what a process wrote instead of answers, as the end of an error text; empty if it wrote nothing."""
    quoted = f" Its standard output is not MCP: {stray!r}." if stray else ""
    return quoted + (f" Its last words:\n{stderr}" if stderr else "")


def add_unknown_outcome(error: MCPConnectionError) -> MCPConnectionError:
    """Return the error of a call that may have been sent, with the word that it may have taken effect."""
    if "outcome" in error.details or "status" in error.details:
        return error
    details = {**error.details, "outcome": "unknown"}
    cause = str(error).rstrip(".")
    text = cause + ("\n" if "\n" in cause else ". ") + OUTCOME_UNKNOWN
    return type(error)(text, server=error.server, phase=error.phase, details=details)


def advise_missing_import(stderr: str, command: str) -> str:
    """Return what to do about a Python server that ended because an import failed; empty: none did.

    Version 2 of the package `mcp` has no `mcp.server.fastmcp`, among others. Servers that ask for any version get it.
    """
    if not _OLD_IMPORT.search(stderr):
        missing = _NO_MODULE.search(stderr)
        if missing is None or not _PYTHON.fullmatch(Path(command).name):
            return ""
        return (
            f"This Python has no module '{missing[1]}': start the server with the Python of its virtual environment "
            f"(such as .venv/bin/python), or install what it needs: {command} -m pip install {_package_of(missing[1])}."
        )
    how = "write --with 'mcp<2' before its package" if command == "uvx" else "install 'mcp<2' where it runs"
    return (
        f"It was written for version 1 of the package 'mcp' and got a newer one: {how}, or use a newer version of it."
    )


def _package_of(module: str) -> str:
    # Another module's package may have any name, also that of a stranger.
    return module if module in _SERVER_PACKAGES else "PACKAGE"


class ErrorFactory:
    """Builds the errors of one server, and masks secrets in errors and in messages of the server."""

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
        """`secrets` are masked in errors, `credentials` also in messages of the server.

        - `is_server_logged`: the log messages of the server are written to our log.
        - `is_request_declared`: a request names the server by its URL. Operator secrets are then not masked in its
          messages: a mask would confirm a guessed secret.
        - `may_expose_causes`: results of failed calls contain the cause, because their readers operate the server.
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
        """Build the error for a lack of file descriptors in this process; the server has no part in it."""
        return self.connection(
            phase, f"it was not tried: {SHORTAGE_TEXT}. Try again in a moment.", shortage=True, is_public=True
        )

    def over_budget(self, phase: str) -> MCPProtocolError:
        """Build the error for an answer that does not fit into the byte budget.

        It is no connection error: the connection works, and repeating the call would not help.
        """
        unknown = f" {OUTCOME_UNKNOWN}" if phase == "call" else ""
        return self.protocol(phase, f"{OVER_BUDGET}{unknown} Ask for less, or try again later.", is_public=True)

    def protocol(self, phase: str, text: str, **details: Any) -> MCPProtocolError:
        return self.build(MCPProtocolError, phase, text, **details)

    def build(self, kind: type[E], phase: str, text: str, **details: Any) -> E:
        known = {key: value for key, value in details.items() if value is not None}
        message = f"Server '{self.server}' ({phase}): {self.mask(text)}"
        return kind(message, server=self.server, phase=phase, details=known)

    def explain(self, error: MCPError) -> str:
        """Return the text of an error for the caller: all of it, or the public text if causes must not be exposed."""
        return str(error) if self._may_expose_causes else error.public_text

    def learn_token(self, headers: Mapping[str, str]) -> None:
        """Mask the token in these headers from now on. Each request may have a new one."""
        for name, value in headers.items():
            if name.lower() == "authorization":
                self._tokens.add(value.rpartition(" ")[2])

    @property
    def tokens(self) -> tuple[str, ...]:
        """The access tokens that were sent lately."""
        return self._tokens.values

    def mask_message(self, message: Any, raw: bytes | bytearray) -> Any:
        """Return a message of the server with secrets masked. `raw`: the bytes that it was parsed from."""
        for secrets in self._message_secrets:
            if secrets.needles and secrets.may_be_in(raw):
                message = secrets.mask_message(message)
        return message

    def mask(self, text: str) -> str:
        """Return text of the server with all secrets masked that were sent to it."""
        for secrets in (self._error_secrets, *self._message_secrets):
            text = secrets.mask(text)
        return text

    def excerpt(self, raw: bytes | bytearray | str, limit: int = MAX_RAW_SHOWN) -> str:
        """Return the beginning of raw data, masked, as an error shows it."""
        text = raw if isinstance(raw, str) else raw[: limit * 4 + 1024].decode("utf-8", "replace")
        text = self.mask(text.strip())
        return text if len(text) <= limit else text[:limit] + "..."
