"""Requests for what another gateway holds: sessions, and the paused calls of clients without one.

A session that a living gateway holds stays there, with the state of the servers behind it, and its requests are relayed
to it. One that was released, or whose gateway has died, is taken over by the gateway that is asked. A request that a
gateway was answering when it died is answered with an error: whether it was done is not known, so it is not run again.

A session is found only by its caller, with the same scope and at the same path, wherever it is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from holodeck.gateway.auth.callers import Caller, RevokedCallers
from holodeck.gateway.http.errors import APIError, shutting_down_error
from holodeck.gateway.http.replies import Reply, StreamedReply
from holodeck.gateway.http.request import Request, RequestReservation
from holodeck.gateway.mcp_endpoint.endpoint_sessions import EndpointSession, EndpointSessions
from holodeck.gateway.mcp_endpoint.relays import LostGatewayError, RelayedRequest, Relays
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import BadRequestError, StorageError
from holodeck.mcp_server.errors import RPCError
from holodeck.mcp_server.modern_requests import ModernRequests
from holodeck.mcp_server.view import View
from holodeck.storage.mcp_sessions import MCPSessionStore, StoredMCPSession
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, RequestId, encode

# Attempts to find the gateway of a session that changes hands meanwhile, and seconds between two of them.
MAX_ATTEMPTS = 8
ATTEMPT_PAUSE = 0.1
# Seconds between two checks whether a gateway is alive, before its sessions are taken over.
CHECK_PAUSE = 1.0
# Headers that the gateway that answers reads, beside all that begin with `mcp-`.
_HEADERS = frozenset({"accept", "content-type", "last-event-id"})
_LOST = "The gateway that ran this request has ended. Whether it was done is not known. The session goes on."


AnswerHere = Callable[[Request, str, View], Awaitable[Reply | StreamedReply]]
"""Answers a request with its method, for what this gateway holds."""


class SharedSessions:
    """Finds what other gateways hold, and answers for what this one holds. Owns the relays."""

    def __init__(
        self,
        store: MCPSessionStore,
        sessions: EndpointSessions,
        modern: ModernRequests,
        budget: ByteBudget,
        *,
        answer: AnswerHere,
        is_draining: Callable[[], bool],
        checks_before_takeover: int,
    ) -> None:
        """`checks_before_takeover`: checks in a row at which a gateway must be missing before it counts as dead."""
        self._store = store
        self._sessions = sessions
        self._modern = modern
        self._answer = answer
        self._is_draining = is_draining
        self._checks_before_takeover = checks_before_takeover
        self._relays = Relays(
            store,
            budget,
            self._answer_relayed,
            is_needed=lambda: bool(len(sessions) or modern.has_paused),
            checks_before_loss=checks_before_takeover,
        )

    async def follow(self) -> None:
        """Answer what other gateways ask. Runs until it is cancelled."""
        await self._relays.follow()

    async def drain(self, seconds: float) -> None:
        """End what only waits, and give what is under way between gateways `seconds`: this one stops."""
        await self._relays.drain(seconds)

    async def close(self) -> None:
        await self._relays.close()

    async def add(self, session: EndpointSession) -> None:
        """Let other gateways find a new session. Raises `StorageError`, and the session has ended."""
        try:
            await self._sessions.add_row(session)
        except BaseException:
            self._sessions.end(session)
            raise
        self._relays.wake()

    async def delete_all_of(self, revoked: RevokedCallers) -> None:
        """Delete the sessions of callers that no gateway holds at this moment. They are not found without a key."""
        try:
            await self._store.delete_sessions_of(revoked.names)
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)

    async def reach(self, request: Request, method: str, session_id: str, view: View) -> Reply | StreamedReply | None:
        """Have a request answered by the gateway that holds its session.

        None: this gateway does, since it has taken it over, or there is no such session of this caller.
        """
        missing = 0
        for attempt in range(MAX_ATTEMPTS):
            stored = await self._store.find_session(session_id)
            if self._sessions.get(session_id) is not None:
                return None
            if stored is None or not _belongs_to(stored, request, view) or self._sessions.is_ending(session_id):
                return None
            if stored.gateway_id == self._store.gateway_id:
                # Taken over by a statement whose acknowledgement was lost.
                self._sessions.restore(stored, view)
                return None
            if stored.gateway_id is not None and stored.is_alive:
                reply = await self._relay(stored.gateway_id, request, method, session_id, view)
                if reply is not None:
                    return reply
                await asyncio.sleep(ATTEMPT_PAUSE * attempt)
                continue
            if self._is_draining():
                raise shutting_down_error()
            missing += 1
            if stored.gateway_id is not None and missing < self._checks_before_takeover:
                await asyncio.sleep(CHECK_PAUSE)
            elif await self._store.take_session(session_id, stored.epoch):
                log.info("mcp_server.session_taken_over", caller=stored.caller_id)
                self._sessions.restore(replace(stored, epoch=stored.epoch + 1), view)
                self._relays.wake()
                return None
        message = "The session is changing its gateway. Try again."
        raise APIError(503, message, kind="server_error", code="session_moving", retry_after="1")

    async def reach_paused(self, request: Request, state: object, view: View) -> Reply | StreamedReply | None:
        """Have a request answered by the gateway that holds its paused call. None: this gateway does, or none."""
        holder = str(state).partition(".")[0]
        if not holder.isdecimal() or len(holder) > len(str(2**31)) or int(holder) == self._store.gateway_id:
            return None
        try:
            return await self._send(int(holder), request, "POST", str(state), view)
        except LostGatewayError:
            return None

    async def _relay(
        self, gateway_id: int, request: Request, method: str, session_id: str, view: View
    ) -> Reply | StreamedReply | None:
        """Relay a request. None: the session is not there any more, and nothing was run."""
        try:
            reply = await self._send(gateway_id, request, method, session_id, view)
        except LostGatewayError:
            lost = _build_lost_answer(request)
            return None if lost is None else Reply(body=lost)
        if not isinstance(reply, StreamedReply):
            return reply
        return replace(reply, chunks=_end_lost(reply.chunks, request))

    async def _answer_relayed(
        self, relayed: RelayedRequest, reservation: RequestReservation
    ) -> Reply | StreamedReply | None:
        """Answer a request that came to another gateway. None: what it is for is not held here."""
        session = self._sessions.get(relayed.target)
        view = self._modern.find_paused(relayed.target) if session is None else session.protocol.view
        if view is None:
            return None
        caller = view.account
        assert isinstance(caller, Caller)  # noqa: S101 - the endpoint makes its views so
        held = (view.caller_id, caller.scope.digest(), view.server or "")
        if held != (relayed.caller_id, relayed.scope, relayed.server):
            # The sender answers that there is none.
            return None
        request = Request(
            caller=caller,
            path_params={} if view.server is None else {"server": view.server},
            headers=relayed.headers,
            query={},
            reservation=reservation,
            body=relayed.body,
            id=relayed.id,
        )
        return await self._answer(request, relayed.method, view)

    async def _send(
        self, gateway_id: int, request: Request, method: str, target: str, view: View
    ) -> Reply | StreamedReply | None:
        headers = {
            name: value for name, value in request.headers.items() if name in _HEADERS or name.startswith("mcp-")
        }
        relayed = RelayedRequest(
            method=method,
            target=target,
            caller_id=view.caller_id,
            scope=request.caller.scope.digest(),
            server=view.server or "",
            headers=headers,
            id=request.id,
            body=request.body,
        )
        return await self._relays.send(gateway_id, relayed)


def encode_lost_error(request_id: RequestId) -> bytes:
    """Return the answer to a request that ran at a gateway which has ended."""
    return encode(RPCError(INTERNAL_ERROR, _LOST).to_response(request_id))


def encode_event(message: bytes) -> bytes:
    """Return a message as an event to which no client can come back."""
    return b"event: message\ndata: %b\n\n" % message


def _belongs_to(stored: StoredMCPSession, request: Request, view: View) -> bool:
    wanted = (view.caller_id, view.server or "", request.caller.scope.digest())
    return (stored.caller_id, stored.server, stored.scope) == wanted


async def _end_lost(chunks: AsyncGenerator[bytes, None], request: Request) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of another gateway, and the error where it dies before the answer."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk
    except LostGatewayError:
        lost = _build_lost_answer(request)
        if lost is not None:
            yield encode_event(lost)


def _build_lost_answer(request: Request) -> bytes | None:
    """Return the answer to what a message asks, or None where it asks nothing."""
    try:
        message = request.json() if request.body else None
    except BadRequestError:
        return None
    errors = [
        encode_lost_error(each["id"])
        for each in (message if isinstance(message, list) else [message])
        if isinstance(each, dict) and "method" in each and "id" in each
    ]
    if not errors:
        return None
    return b"[%b]" % b",".join(errors) if isinstance(message, list) else errors[0]
