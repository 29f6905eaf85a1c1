"""Negotiates the era and version of the protocol with a server.

The client first sends the modern probe (`server/discover`). If the server refuses it, or is silent for `probe_timeout`,
the client also sends the legacy handshake (`initialize`), and the first agreement of the two decides. Both requests are
tasks of one `_Negotiation`, which cancels the unanswered one at its end. A server that is known to be legacy gets the
handshake alone, and the probe only if it refuses the handshake as a modern server does. A definition can fix the era;
then only its own request is sent. The caller sets the deadline for the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError
from holodeck.lib.limits import NOTICE_TIMEOUT, PROBE_TIMEOUT
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.protocol.jsonrpc import HEADER_MISMATCH, UNSUPPORTED_VERSION
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.versions import (
    CLIENT_INFO,
    LEGACY_VERSIONS,
    META_SERVER,
    MODERN_VERSIONS,
    NegotiatedTerms,
    ProtocolEra,
    mapping,
)

# Seconds for a legacy server to request the roots, which it does right after the handshake.
ROOTS_TIMEOUT = 1.0
# Seconds for the server to check the roots on its disk; the protocol has no message for the end of that.
ROOTS_SETTLE = 0.2

T = TypeVar("T")

# HTTP statuses that concern the caller or the moment, and say nothing about the era of the server.
_INCONCLUSIVE_STATUSES = frozenset({401, 403, 407, 408, 429})


async def negotiate(
    session: Session,
    known_era: ProtocolEra | None,
    *,
    is_fixed: bool = False,
    probe_timeout: float = PROBE_TIMEOUT,
) -> None:
    """Agree on an era and a version, and set the terms of the session. Raises MCPError.

    `known_era`: that of the definition, of the transport, or of an earlier connection to the same server. `is_fixed`:
    the definition allows no other. The caller sets the deadline.
    """
    if known_era is ProtocolEra.LEGACY:
        await _negotiate_legacy(session, is_fixed=is_fixed)
        return
    if known_era is ProtocolEra.MODERN and is_fixed:
        await _require_modern(session)
        return
    negotiation = _Negotiation(session)
    try:
        await negotiation.run(probe_timeout)
    finally:
        await negotiation.close()


class _Negotiation:
    """The modern probe and the legacy handshake of one session, and the tasks that run them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tasks = TaskSet()
        self._probe = self._start(_discover(session, MODERN_VERSIONS[-1]))

    async def run(self, probe_timeout: float) -> None:
        await asyncio.wait({self._probe}, timeout=probe_timeout)
        if self._probe.done() and isinstance(terms := self._probe.result(), NegotiatedTerms):
            self._session.set_terms(terms)
            return
        await self._wait_first_agreement(self._start(_initialize(self._session)))

    async def close(self) -> None:
        """Cancel the requests without an answer."""
        await self._tasks.close(NOTICE_TIMEOUT)

    def _start(self, request: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._tasks.start(request)
        # The error of a request that lost the race is not needed; asyncio would log it at the end of the task.
        task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
        return task

    async def _wait_first_agreement(self, handshake: asyncio.Task[NegotiatedTerms]) -> None:
        """Wait for both requests; the first one that the server accepts decides."""
        session, probe = self._session, self._probe
        pending: set[asyncio.Task[Any]] = {task for task in (probe, handshake) if not task.done()}
        refusal: MCPProtocolError | None = None
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if probe in done and isinstance(terms := probe.result(), NegotiatedTerms):
                session.set_terms(terms)
                return
            if handshake in done:
                try:
                    await _start_legacy(session, handshake.result())
                except MCPProtocolError as error:
                    refusal = error
                    if (version := _modern_alternative(error)) is not None:
                        session.set_terms(await self._discover_late(version))
                        return
                else:
                    return
        cause = probe.result()
        # Only a modern server answers so: the error of the modern probe is then the reason.
        if refusal is not None and refusal.details.get("code") == HEADER_MISMATCH and isinstance(cause, MCPError):
            raise cause
        raise refusal or session.errors.protocol("initialize", "the server agreed to no version of the protocol")

    async def _discover_late(self, version: str) -> NegotiatedTerms:
        """Return the terms of a modern server that refused the handshake, naming a version that we speak.

        A server that does not describe itself in time is used all the same: it will refuse what it does not have.
        """
        probe = self._start(_discover(self._session, version)) if self._probe.done() else self._probe
        await asyncio.wait({probe}, timeout=PROBE_TIMEOUT)
        terms = probe.result() if probe.done() else None
        if isinstance(terms, NegotiatedTerms):
            return terms
        return NegotiatedTerms(era=ProtocolEra.MODERN, version=version, capabilities={"tools": {}, "prompts": {}})


async def _negotiate_legacy(session: Session, *, is_fixed: bool) -> None:
    try:
        terms = await _initialize(session)
    except MCPProtocolError as error:
        if is_fixed and error.details.get("code") in (UNSUPPORTED_VERSION, HEADER_MISMATCH):
            text = "it does not speak the versions that 'protocol: legacy' allows. Write 'protocol: auto'."
            raise session.errors.protocol("initialize", f"{text} Its answer: {error}") from error
        version = _modern_alternative(error)
        if is_fixed or version is None:
            raise
        modern = await _discover(session, version)
        if not isinstance(modern, NegotiatedTerms):
            raise
        session.set_terms(modern)
    else:
        await _start_legacy(session, terms)


async def _require_modern(session: Session) -> None:
    outcome = await _discover(session, MODERN_VERSIONS[-1])
    if not isinstance(outcome, NegotiatedTerms):
        answer = f" Its answer: {outcome}" if outcome is not None else ""
        text = f"it does not speak {MODERN_VERSIONS[-1]}, which 'protocol: modern' needs. Write 'protocol: auto'."
        raise session.errors.protocol("initialize", text + answer)
    session.set_terms(outcome)


async def _discover(session: Session, version: str) -> NegotiatedTerms | MCPError | None:
    """Return the terms of a modern server; for any other one its error, or None."""
    for wanted in (version, None):
        try:
            result = await session.request(
                "server/discover", meta=session.modern_meta(version), seconds=None, is_cancellable=False
            )
        except MCPProtocolError as error:
            supported = _supported_versions(error)
            if error.details.get("code") != UNSUPPORTED_VERSION or supported is None:
                return error
            mutual = _latest_mutual(supported, MODERN_VERSIONS)
            if mutual is not None and wanted is not None:
                version = mutual
                continue
            if _latest_mutual(supported, LEGACY_VERSIONS) is not None:
                return None
            text = f"it speaks only {', '.join(supported)}; this client speaks up to {MODERN_VERSIONS[-1]}."
            raise session.errors.protocol("initialize", text, **error.details) from error
        except MCPConnectionError as error:
            status = error.details.get("status")
            if status is None or status in _INCONCLUSIVE_STATUSES:
                # A process that did not read the probe has not ended because of it.
                error.details["on_probe"] = not error.details.get("is_input_unread")
                raise
            return error
        return _modern_terms(result)
    return None


def _modern_terms(result: dict[str, Any]) -> NegotiatedTerms | None:
    version = _latest_mutual(result.get("supportedVersions"), MODERN_VERSIONS)
    if version is None:
        return None
    return NegotiatedTerms(
        era=ProtocolEra.MODERN,
        version=version,
        server_info=mapping(mapping(result.get("_meta")).get(META_SERVER)),
        capabilities=mapping(result.get("capabilities")),
        instructions=_nonempty_text(result.get("instructions")),
    )


async def _initialize(session: Session) -> NegotiatedTerms:
    params = {
        "protocolVersion": LEGACY_VERSIONS[-1],
        "capabilities": session.legacy_capabilities(),
        "clientInfo": CLIENT_INFO,
    }
    result = await session.request("initialize", params, seconds=None, is_cancellable=False)
    version = result.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        text = (
            f"it chose protocol version {version!r}; this client speaks {', '.join(LEGACY_VERSIONS + MODERN_VERSIONS)}."
        )
        raise session.errors.protocol("initialize", text)
    return NegotiatedTerms(
        era=ProtocolEra.LEGACY,
        version=version,
        server_info=mapping(result.get("serverInfo")),
        capabilities=mapping(result.get("capabilities")),
        instructions=_nonempty_text(result.get("instructions")),
    )


async def _start_legacy(session: Session, terms: NegotiatedTerms) -> None:
    session.set_terms(terms)
    await session.notify("notifications/initialized")
    if session.has_roots:
        await _wait_roots_sent(session)


async def _wait_roots_sent(session: Session) -> None:
    """Wait until a server that uses roots has them: it requests them now, and refuses every path before."""
    with suppress(MCPProtocolError, MCPTimeoutError):
        # The server's request for roots, if any, is sent before its answer to this ping.
        await session.request("ping", seconds=ROOTS_TIMEOUT, is_cancellable=False)
    if session.is_roots_requested:
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_TIMEOUT):
                await session.roots_sent.wait()
        await asyncio.sleep(ROOTS_SETTLE)


def _modern_alternative(error: MCPError) -> str | None:
    """Return the modern version that we speak too and that a server named when it refused the handshake, or None."""
    if error.details.get("code") != UNSUPPORTED_VERSION:
        return None
    return _latest_mutual(_supported_versions(error), MODERN_VERSIONS)


def _supported_versions(error: MCPError) -> list[str] | None:
    supported = mapping(error.details.get("data")).get("supported")
    return [str(version) for version in supported] if isinstance(supported, list) else None


def _latest_mutual(offered: object, ours: Iterable[str]) -> str | None:
    known = [version for version in ours if isinstance(offered, list) and version in offered]
    return known[-1] if known else None


def _nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
