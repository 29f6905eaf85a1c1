"""Requests of the protocol from 2026-07-28 on: each carries all that it needs, and there is no session.

A server behind that asks something makes a call pause: its result is then `input_required`, with the questions and a
`requestState`. The client sends the call again with the answers and that state, and the paused call goes on. A paused
call belongs to the caller that made it, is found only by its state, and is cancelled after `PAUSE_LIMIT`.

An answer counts only for a question of the call that it was asked for: the same method, arguments and view. Questions
of this program, such as for an approval, have random keys, so that none can be answered before it was asked. A question
of a server has the key that the server gave it, which a client may answer in its first request, as at the server.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Container, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.json.parse import parsed_weight
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.context import Ask, RequestContext, Send
from holodeck.mcp_server.errors import RPCError, invalid_params
from holodeck.mcp_server.list_changes import Area, ListChanges
from holodeck.mcp_server.methods import CAPABILITIES, MAX_SUBSCRIPTIONS, META_MISSING, Methods, Result
from holodeck.mcp_server.view import View
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, UNSUPPORTED_VERSION, Message, RequestId, encode
from holodeck.tools.mcp.protocol.peer import Params, RefusalError
from holodeck.tools.mcp.protocol.server_log import LEVEL_NAMES
from holodeck.tools.mcp.protocol.server_requests import ANSWER_TIMEOUT
from holodeck.tools.mcp.protocol.versions import (
    CLIENT_INFO,
    LEGACY_VERSIONS,
    META,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    META_SERVER,
    META_VERSION,
    MODERN_VERSIONS,
    ProtocolEra,
    mapping,
)

# Milliseconds for which a client may use a list again without asking. Changes are announced to those that listen.
LIST_TTL_MS = 5_000
# Seconds for which a call waits for the answers of its client.
PAUSE_LIMIT = ANSWER_TIMEOUT
# Paused calls of one caller, and of all.
MAX_PAUSED_PER_CALLER = 64
MAX_PAUSED = 1_000
# Seconds for paused calls to end when they are cancelled.
CLOSE_TIMEOUT = 5.0

# Fields of a request that differ between the rounds of one call.
_ROUND_FIELDS = frozenset({"_meta", "inputResponses", "requestState"})
# Methods that may be answered with questions.
_PAUSABLE = frozenset({"tools/call", "prompts/get", "resources/read"})
# Methods whose results say for how long they may be used.
_CACHEABLE = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover"}
)
_SUBSCRIPTION_ID = f"{META}/subscriptionId"
_AREAS: tuple[Area, ...] = ("prompts", "resources", "tools")


@record
class _Question:
    request: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]


class _PausableCall:
    """One call that may pause. `task` runs its handler; each round ends with the result or with questions."""

    def __init__(self, method: str, params: Params, view: View, send: Send, reserved: Reservation) -> None:
        """`reserved`: for what it keeps of its request while it is paused."""
        self.reserved = reserved
        self._early_answers = dict(mapping(params.get("inputResponses")))
        """Answers of the first request, to questions of a server that the client knows by their keys."""
        self.view = view
        self._method = method
        self.params = params
        self.send = send
        """Of the current round."""
        self.task: asyncio.Task[Result] | None = None
        self.questions: dict[str, _Question] = {}
        self._asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there is a question that the client has not been asked yet."""

    def send_now(self, message: Message) -> None:
        """Send a message with the current round."""
        self.send(message)

    def is_repeated_by(self, method: str, params: Params, view: View) -> bool:
        """Return whether a request is the next round of this call: the same, by the same caller in the same scope."""
        is_same = (method, _fixed_params(params)) == (self._method, _fixed_params(self.params))
        return is_same and view == self.view

    async def ask(self, method: str, params: Params, key: str) -> Mapping[str, Any]:
        """Put a question to the client, and wait until a later round has its answer. Raises RefusalError.

        `key`: that of the server which asks. Without one the question cannot be answered before it was asked.
        """
        if key and isinstance(known := self._early_answers.pop(key, None), dict):
            return known
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        if not key or key in self.questions:
            key = secrets.token_urlsafe(16)
        self.questions[key] = _Question(request={"method": method, "params": dict(params)}, answer=answer)
        self._announce_question()
        try:
            return await answer
        finally:
            self.questions.pop(key, None)

    def apply_answers(self, answers: Mapping[str, Any]) -> None:
        """Take the answers of the client. Those to other questions are ignored; what is not answered is asked again."""
        self._early_answers.clear()
        for key, answer in answers.items():
            question = self.questions.get(key)
            if question is not None and not question.answer.done():
                if isinstance(answer, dict):
                    question.answer.set_result(answer)
                else:
                    question.answer.set_exception(RefusalError(INTERNAL_ERROR, "The client's answer is no object"))
        self._asked = asyncio.get_running_loop().create_future()

    def _announce_question(self) -> None:
        if not self._asked.done():
            self._asked.set_result(None)

    async def finish_round(self) -> Result | None:
        """Wait for the result, or return None when there are questions."""
        assert self.task is not None  # noqa: S101 - set right after the constructor
        # Lets the handler take the answers before the questions are counted.
        await asyncio.sleep(0)
        if any(not question.answer.done() for question in self.questions.values()):
            self._announce_question()
        awaited: list[asyncio.Future[Any]] = [self.task, self._asked]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            return self.task.result()
        # Questions that a server asks together come in one round.
        await asyncio.sleep(0)
        return None


class ModernRequests:
    """Answers modern requests, and owns the paused calls between two of them."""

    def __init__(self, methods: Methods, changes: ListChanges, budget: ByteBudget, *, holder: str = "") -> None:
        """`budget`: for what paused calls keep of their requests. `holder`: with what each `requestState` begins."""
        self._holder = holder
        self._budget = budget
        self._methods = methods
        self._changes = changes
        self._paused: dict[str, _PausableCall] = {}
        self._tasks = TaskSet()
        self._closing = asyncio.Event()
        """Ends the subscriptions in an orderly way."""

    async def handle_request(
        self, request_id: RequestId, method: str, params: Params, view: View, send: Send
    ) -> Result:
        """Return the result of a request. `send`: for messages that belong to it. Raises RPCError.

        Cancelling it cancels the call behind, unless the call is paused.
        """
        meta = require_meta(params)
        _check_version(meta[META_VERSION])
        if method == "server/discover":
            return _complete(method, self._describe(view))
        if method == "subscriptions/listen":
            return await self._listen(request_id, params, view, send)
        if method not in _PAUSABLE:
            context = _build_context(view, params, meta, send)
            return _complete(method, await self._methods.handle(method, params, context))
        return await self._run_round(method, params, meta, view, send)

    @property
    def has_paused(self) -> bool:
        """Whether a call waits for its client."""
        return bool(self._paused)

    def find_paused(self, state: object) -> View | None:
        """Return the view of the paused call of a `requestState`, or None if there is none here."""
        call = self._paused.get(state) if isinstance(state, str) else None
        return None if call is None else call.view

    def cancel_callers(self, caller_ids: Container[str]) -> None:
        """Cancel the paused calls of these callers."""
        for state, call in list(self._paused.items()):
            if call.view.caller_id in caller_ids:
                self._drop(state)

    def end_subscriptions(self) -> None:
        """Answer every `subscriptions/listen`: this server ends."""
        self._closing.set()

    async def close(self) -> None:
        self.end_subscriptions()
        for state in list(self._paused):
            self._drop(state)
        await self._tasks.close(CLOSE_TIMEOUT)

    async def _run_round(self, method: str, params: Params, meta: Mapping[str, Any], view: View, send: Send) -> Result:
        call = self._resume(method, params, view, send) if "requestState" in params else None
        if call is None:
            call = _PausableCall(method, params, view, send, Reservation(self._budget))
            context = _build_context(view, params, meta, call.send_now, call.ask)
            call.task = self._start(self._methods.handle(method, params, context))
        assert call.task is not None  # noqa: S101 - a paused call has one
        try:
            result = await call.finish_round()
        except asyncio.CancelledError:
            call.task.cancel()
            raise
        return _complete(method, result) if result is not None else self._pause(call)

    def _start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = self._tasks.start(work, name="MCP call")
        # The error of a call whose client never comes back is not needed; asyncio would log it at the end of the task.
        task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
        return task

    def _pause(self, call: _PausableCall) -> Result:
        of_caller = [state for state, each in self._paused.items() if each.view.caller_id == call.view.caller_id]
        if len(of_caller) >= MAX_PAUSED_PER_CALLER:
            self._drop(of_caller[0])
        elif len(self._paused) >= MAX_PAUSED:
            self._drop(next(iter(self._paused)))
        text = encode(dict(call.params))
        try:
            call.reserved.resize(len(text) + parsed_weight(text))
        except OverBudgetError:
            self._cancel(call)
            raise RPCError(INTERNAL_ERROR, "The gateway has no room for a call that waits. Try again later.") from None
        state = f"{self._holder}.{secrets.token_urlsafe(32)}"
        self._paused[state] = call
        # While no request of the client is open, there is no way to it.
        call.send = _drop_message
        asyncio.get_running_loop().call_later(PAUSE_LIMIT, self._drop, state)
        questions = {key: question.request for key, question in call.questions.items()}
        return {"resultType": "input_required", "inputRequests": questions, "requestState": state}

    def _resume(self, method: str, params: Params, view: View, send: Send) -> _PausableCall:
        state = params["requestState"]
        call = self._paused.get(state) if isinstance(state, str) else None
        if call is None or not call.is_repeated_by(method, params, view):
            raise invalid_params(
                "'requestState' is not known: the call was answered, has waited too long, or is another one."
            )
        del self._paused[state]
        # The request of this round holds what its parameters take, which are the same.
        call.reserved.release()
        call.send = send
        call.apply_answers(mapping(params.get("inputResponses")))
        return call

    def _drop(self, state: str) -> None:
        call = self._paused.pop(state, None)
        if call is not None:
            self._cancel(call)

    def _cancel(self, call: _PausableCall) -> None:
        call.reserved.release()
        if call.task is not None:
            call.task.cancel()

    def _describe(self, view: View) -> Result:
        result: dict[str, Any] = {
            "supportedVersions": [*reversed(MODERN_VERSIONS), *reversed(LEGACY_VERSIONS)],
            "capabilities": CAPABILITIES,
            "_meta": {META_SERVER: CLIENT_INFO},
        }
        instructions = self._methods.describe(view)
        return result if instructions is None else {**result, "instructions": instructions}

    async def _listen(self, request_id: RequestId, params: Params, view: View, send: Send) -> Result:
        """Send the notifications that a client has asked for until it cancels the request, or this server ends."""
        wanted = mapping(params.get("notifications"))
        areas = [area for area in _AREAS if wanted.get(f"{area}ListChanged") is True]
        uris = wanted.get("resourceSubscriptions")
        # Each once: an update is told once, however often a client names the resource.
        watched = list(dict.fromkeys(uri for uri in uris if isinstance(uri, str))) if isinstance(uris, list) else []
        if len(watched) > MAX_SUBSCRIPTIONS:
            raise invalid_params(f"'resourceSubscriptions' must have at most {MAX_SUBSCRIPTIONS} resources")
        meta = {_SUBSCRIPTION_ID: request_id}

        def notify(method: str, **fields: Any) -> None:
            send({"jsonrpc": "2.0", "method": method, "params": {**fields, "_meta": meta}})

        accepted: dict[str, Any] = {f"{area}ListChanged": True for area in areas}
        if watched:
            accepted["resourceSubscriptions"] = watched
        notify("notifications/subscriptions/acknowledged", notifications=accepted)

        def tell_change(area: Area, servers: Collection[str] | None) -> None:
            if area in areas and view.has_any_server(servers):
                notify(f"notifications/{area}/list_changed")

        stop = self._changes.listen(tell_change)
        try:
            async with AsyncExitStack() as subscriptions:
                for uri in watched:
                    subscription = await self._methods.subscribe(
                        uri, view, lambda updated: notify("notifications/resources/updated", uri=updated)
                    )
                    await subscriptions.enter_async_context(subscription)
                await self._closing.wait()
        finally:
            stop()
        return {"resultType": "complete", "_meta": meta}


def is_modern(params: Params) -> bool:
    """Return whether a request is of the modern era: only these name their version."""
    return META_VERSION in mapping(params.get("_meta"))


def require_meta(params: Params) -> Mapping[str, Any]:
    """Return the `_meta` of a modern request. Raises RPCError where it lacks what every one must have."""
    meta = mapping(params.get("_meta"))
    if not isinstance(meta.get(META_VERSION), str):
        raise invalid_params(f"'_meta' must have a text '{META_VERSION}'")
    if not isinstance(meta.get(META_CAPABILITIES), dict):
        raise invalid_params(f"'_meta' must have an object '{META_CAPABILITIES}'")
    return meta


def _check_version(version: str) -> None:
    if version not in MODERN_VERSIONS:
        data = {"supported": [*reversed(MODERN_VERSIONS), *reversed(LEGACY_VERSIONS)], "requested": version}
        raise RPCError(UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", data)


def _build_context(
    view: View, params: Params, meta: Mapping[str, Any], send: Send, ask: Ask | None = None
) -> RequestContext:
    level = meta.get(META_LOG_LEVEL)
    asking = {} if ask is None else {"ask": ask}
    return RequestContext(
        view,
        era=ProtocolEra.MODERN,
        capabilities=mapping(meta.get(META_CAPABILITIES)),
        params=params,
        send=send,
        log_level=level if level in LEVEL_NAMES else None,
        **asking,
    )


def _complete(method: str, result: Result) -> Result:
    completed: dict[str, Any] = {**result, "resultType": "complete"}
    if method in _CACHEABLE:
        # A list from which a server is missing is complete as soon as that server is there.
        is_fleeting = method == "resources/read" or META_MISSING in mapping(result.get("_meta"))
        completed.setdefault("ttlMs", 0 if is_fleeting else LIST_TTL_MS)
        completed.setdefault("cacheScope", "private")
    return completed


def _fixed_params(params: Params) -> dict[str, Any]:
    """Return what the client must repeat in each round of a call."""
    return {key: value for key, value in params.items() if key not in _ROUND_FIELDS}


def _drop_message(message: Message) -> None:
    """Send nothing: a `Send` for a call that no request of its client waits for."""
