"""Notices to a legacy server about the clients in front of it: the log level that they want, and changed roots.

A modern server learns both with each request, so nothing is sent to it here. The notices raise only cancellation:
without them a client misses log messages, and its calls work all the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holodeck.lib.errors import MCPError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.tools.mcp.protocol.versions import ProtocolEra

if TYPE_CHECKING:
    from holodeck.tools.mcp.protocol.session import Session


async def lower_log_level(session: Session, level: str | None = None) -> None:
    """Let the server send log messages of this level, if it does not yet.

    None: of the level of the only client in front, or else of our own log.
    """
    terms = session.terms
    if terms is None or terms.era is not ProtocolEra.LEGACY or not terms.has_capability("logging"):
        return
    only_peer = session.responder.find_only_peer()
    wanted = session.server_log.lower_request(level or (None if only_peer is None else only_peer.log_level))
    if wanted is not None:
        with suppress(MCPError):
            await session.request("logging/setLevel", {"level": wanted}, seconds=NOTICE_TIMEOUT)


async def announce_roots(session: Session) -> None:
    """Tell the server that the roots of the client in front have changed, if it was given those."""
    is_legacy = session.terms is not None and session.terms.era is ProtocolEra.LEGACY
    if is_legacy and session.responder.passes_roots_on:
        with suppress(MCPError, TimeoutError):
            await session.notify("notifications/roots/list_changed")
