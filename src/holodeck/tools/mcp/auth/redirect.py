"""The redirect at the end of a login: what `LoginFlow` needs of the place that the browser comes back to.

`loopback_redirect.py` has it on this machine. A gateway has it among its routes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holodeck.lib.errors import MCPError
from holodeck.lib.record import record
from holodeck.tools.mcp.auth.provider import auth_error

# Seconds for a person to find the browser window, log in and consent.
LOGIN_TIMEOUT = 300.0


@record
class RedirectResult:
    """The parameters of the redirect, sent by the authorization server through the browser."""

    code: str = ""
    state: str = ""
    iss: str | None = None
    error: str = ""
    description: str = ""

    @property
    def is_granted(self) -> bool:
        return bool(self.code) and not self.error


class Redirect(Protocol):
    """The place where the browser comes back to at the end of one login."""

    @property
    def uri(self) -> str:
        """The redirect URI, for the registration and for the login page."""
        ...

    def expect_state(self, state: str) -> None:
        """Accept only a redirect with this state. Before the first call none is accepted."""
        ...

    async def wait_result(self) -> RedirectResult:
        """Wait for the redirect. Raises MCPConnectionError after `LOGIN_TIMEOUT`."""
        ...


OpenRedirect = Callable[[Sequence[str]], AbstractAsyncContextManager[Redirect]]
"""Opens the redirect of one login. The argument: the redirect URIs of the stored registration, if there is one."""


def late_login_error(server: str, seconds: float) -> MCPError:
    return auth_error(server, f"nobody logged in within {seconds:g} s. Try again when you are at a browser.")


def read_redirect(query: Mapping[str, str]) -> RedirectResult:
    """Read the query of a redirect whose state is the expected one."""
    return RedirectResult(
        code=query.get("code", ""),
        state=query.get("state", ""),
        iss=query.get("iss"),
        error=query.get("error", ""),
        description=query.get("error_description", ""),
    )
