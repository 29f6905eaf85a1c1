"""Finds out which era a server speaks, without making the silent ones cost more than a few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError
from holodeck.lib.limits import PROBE_TIMEOUT
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

# A server that wants our folders asks for them as soon as it has heard of us.
ROOTS_TIMEOUT = 1.0
# It then looks at them on its disk, and nothing tells us when it is done.
ROOTS_SETTLE = 0.2


_INCONCLUSIVE_STATUSES = frozenset(
    {401, 403, 407, 408, 429}
)  # these statuses speak of the caller or the moment, not of the era


async def negotiate(session: Session, known_era: ProtocolEra | None, *, probe_timeout: float = PROBE_TIMEOUT) -> None:
    """Agree on an era and a version. The caller has the deadline; after `probe_timeout` both questions are asked."""
    if known_era is ProtocolEra.LEGACY:
        await _start_legacy(session, await _initialize(session))
        return
    probe = asyncio.create_task(_discover(session, MODERN_VERSIONS[-1]))
    hello: asyncio.Task[NegotiatedTerms] | None = None
    try:
        await asyncio.wait({probe}, timeout=probe_timeout)
        if probe.done() and isinstance(terms := probe.result(), NegotiatedTerms):
            session.set_terms(terms)
            return
        hello = asyncio.create_task(_initialize(session))
        await _await_first_agreement(session, probe, hello)
    finally:
        for task in (probe, hello):
            if task is not None:
                task.cancel()  # of no effect on one that has failed, whose error is looked at here
                with suppress(asyncio.CancelledError, MCPError):
                    await task


async def _await_first_agreement(
    session: Session, probe: asyncio.Task[NegotiatedTerms | MCPError | None], hello: asyncio.Task[NegotiatedTerms]
) -> None:
    """Both questions are asked: whichever is answered with a yes first decides."""
    waiting: set[asyncio.Task[Any]] = {task for task in (probe, hello) if not task.done()}
    refusal: MCPProtocolError | None = None
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if probe in done and isinstance(terms := probe.result(), NegotiatedTerms):
            session.set_terms(terms)
            return
        if hello in done:
            try:
                await _start_legacy(session, hello.result())
            except MCPProtocolError as error:
                refusal = error
                version = _latest_mutual(_supported_versions(error), MODERN_VERSIONS)
                if error.details.get("code") == UNSUPPORTED_VERSION and version is not None:
                    session.set_terms(await _discover_late(session, probe, version))
                    return
            else:
                return
    cause = probe.result()
    if refusal is not None and refusal.details.get("code") == HEADER_MISMATCH and isinstance(cause, MCPError):
        raise cause  # only a modern server says that, so what went wrong with the modern question is what matters
    raise refusal or session.errors.protocol("initialize", "the server agreed to no version of the protocol")


async def _discover_late(
    session: Session, probe: asyncio.Task[NegotiatedTerms | MCPError | None], version: str
) -> NegotiatedTerms:
    """The old handshake is refused for a version that we speak: a modern server, slow to describe itself."""
    if probe.done():
        probe = asyncio.create_task(_discover(session, version))
    await asyncio.wait({probe}, timeout=PROBE_TIMEOUT)
    found = probe.result() if probe.done() else None
    if not probe.done():
        probe.cancel()
    # It need not describe itself for us to use it: what it does not have, it will refuse.
    return (
        found
        if isinstance(found, NegotiatedTerms)
        else NegotiatedTerms(era=ProtocolEra.MODERN, version=version, capabilities={"tools": {}, "prompts": {}})
    )


async def _discover(session: Session, version: str) -> NegotiatedTerms | MCPError | None:
    """The terms of a modern server; or, when it does not look like one, what it said instead, if that was an error."""
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
                error.details["on_probe"] = True
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
    """A server that wants our folders asks right now, and refuses every path until it has them."""
    with suppress(MCPProtocolError, MCPTimeoutError):
        # What it asked on its own account is on its way before the answer to this.
        await session.request("ping", seconds=ROOTS_TIMEOUT, is_cancellable=False)
    if session.is_roots_requested:
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_TIMEOUT):
                await session.roots_sent.wait()
        await asyncio.sleep(ROOTS_SETTLE)


def _supported_versions(error: MCPError) -> list[str] | None:
    supported = mapping(error.details.get("data")).get("supported")
    return [str(version) for version in supported] if isinstance(supported, list) else None


def _latest_mutual(offered: object, ours: Iterable[str]) -> str | None:
    known = [version for version in ours if isinstance(offered, list) and version in offered]
    return known[-1] if known else None


def _nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
