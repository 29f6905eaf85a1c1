"""A task: a tool call whose result a server gives later, and the life of one task on a session.

In the legacy era a call asks for a task. Its state is polled with `tasks/get`, and its result comes from
`tasks/result`, the request during which the server also asks its questions. In the modern era the server decides to
answer a call with a task; its questions and its result are in the answers to `tasks/get`.

A `RemoteTask` belongs to one call. It outlives a connection: `wait_result` may be called again on the next session, and
goes on polling. It raises MCPConnectionError when the session fails, and MCPProtocolError for a task that has failed,
was cancelled by the server or is not known to it (`details["task_lost"]`), and for a server that breaks the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from enum import StrEnum
from typing import Any

from holodeck.lib import log
from holodeck.lib.byte_budget import Reservation
from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.errors import MCPProtocolError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Message, RequestId
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.protocol.pending_requests import OnProgress
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.task_watches import WatchedTask
from holodeck.tools.mcp.protocol.versions import ProtocolEra, mapping
from holodeck.tools.mcp.transports.base import Delivery

# Seconds between two polls: if the server names none, at least, and at most. The least protects a server that names 0;
# the most, a caller whose finished result would wait for hours.
DEFAULT_POLL = 1.0
MIN_POLL = 0.1
MAX_POLL = 60.0
# Seconds without an answer to one poll, which a server answers from memory; the timeout of the call may be hours.
POLL_TIMEOUT = 60.0
# Characters of a task id: it is stored with a durable run, and sent in a header.
MAX_TASK_ID_CHARS = 1_024
# Questions of one task that are answered. A task that asks more never ends.
MAX_TASK_QUESTIONS = 100
# Characters of the server's message about the state, as progress and errors show it.
MAX_STATUS_CHARS = 500


class TaskSupport(StrEnum):
    """The cases in which a tool runs as a task: never, when the call asks for it, or always."""

    FORBIDDEN = "forbidden"
    OPTIONAL = "optional"
    REQUIRED = "required"


class TaskStatus(StrEnum):
    """The states of a task. The last three are final."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_SUPPORT_BY_NAME = {support.value: support for support in TaskSupport}
_FINAL = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})


def parse_task_support(value: object) -> TaskSupport:
    """Return the task support that a tool declares; `forbidden` if it declares none that is known."""
    return _SUPPORT_BY_NAME.get(value, TaskSupport.FORBIDDEN) if isinstance(value, str) else TaskSupport.FORBIDDEN


@record
class TaskState:
    """The state of a task in one answer of its server."""

    task_id: str
    status: TaskStatus
    message: str
    """What the server says about the state; may be empty."""
    poll_pause: float
    """Seconds before the next poll."""
    ttl: float | None
    """Seconds from its creation for which the server stores the task; None: without a limit, or not said."""
    fields: Mapping[str, Any]
    """All fields of the answer."""


def find_created_task(answer: Message, *, is_requested: bool, errors: ErrorFactory) -> TaskState | None:
    """Return the task with which a server answers a call; None for any other answer.

    `is_requested`: the call asked a legacy server for a task. Raises MCPProtocolError for a task that cannot be used.
    """
    if answer.get("resultType") == "task":
        return _parse_state(answer, errors)
    if is_requested and "task" in answer:
        return _parse_state(mapping(answer["task"]), errors)
    return None


class RemoteTask:
    """One task of a server, and the questions of it that were answered."""

    def __init__(
        self,
        task_id: str,
        errors: ErrorFactory,
        *,
        token: RequestId | None = None,
        on_progress: OnProgress | None = None,
        peer: Peer | None = None,
    ) -> None:
        """`token`: the progress token of the call that created the task; None if another process did.

        `peer`: the client that the call is made for. It gets the questions of the task.
        """
        self.id = task_id
        self.silent_since: float | None = None
        """Loop time of the first request about the task that has had no answer; None after an answer."""
        self._created_at = asyncio.get_running_loop().time() if token is not None else None
        self._errors = errors
        self._token = token
        self._on_progress = on_progress
        self._peer = peer
        self._reported = ""
        self._answers: dict[str, Mapping[str, Any]] = {}
        """By key of a question: a person is not asked again for an answer that could not be sent."""
        self._sent_keys: set[str] = set()
        self._ttl: float | None = None
        self.is_ended = False
        """True once the server has nothing more to do for the task, or does not know it."""

    async def wait_result(self, session: Session, *, seconds: float, reserved: Reservation) -> Message:
        """Poll the task until its end, answer its questions, and return its result. Raises MCPError.

        `seconds`: the timeout of the call, which bounds each request. `reserved` holds the bytes of the result.
        """
        is_modern = session.terms is not None and session.terms.era is ProtocolEra.MODERN
        changed = asyncio.Event()
        watched = WatchedTask(changed=changed, peer=self._peer, token=self._token, on_progress=self._on_progress)
        with session.task_watches.watch(self.id, watched):
            if is_modern:
                return await self._wait_modern(session, changed, seconds, reserved)
            requests = TaskSet()
            try:
                return await self._wait_legacy(session, changed, seconds, reserved, requests)
            finally:
                await requests.close(NOTICE_TIMEOUT)

    async def cancel(self, session: Session) -> None:
        """Tell the server that the result is not needed. Raises MCPError when it refuses or does not answer."""
        if not self.is_ended and session.terms is not None and session.terms.can_cancel_tasks():
            await session.request("tasks/cancel", {"taskId": self.id}, seconds=NOTICE_TIMEOUT, is_cancellable=False)

    def report(self, state: TaskState) -> None:
        """Pass a change of the state on as progress."""
        self._ttl = state.ttl
        text = f"{state.status.replace('_', ' ')}: {state.message}" if state.message else state.status.replace("_", " ")
        if self._on_progress is not None and text != self._reported and state.status not in _FINAL:
            try:
                self._on_progress(None, None, text)
            # An error of the listener must not end the call.
            except Exception as error:
                log.error("mcp.listener_failed", server=self._errors.server, error=repr(error))
        self._reported = text

    async def _wait_modern(
        self, session: Session, changed: asyncio.Event, seconds: float, reserved: Reservation
    ) -> Message:
        while True:
            # Only the last answer has a result, whose bytes stay reserved.
            reserved.release()
            state = await self._poll(session, changed, seconds, Delivery(reserved=reserved))
            if state.status is TaskStatus.COMPLETED:
                result = state.fields.get("result")
                if isinstance(result, dict):
                    return result
                raise self._error("says that the task is completed, without a result")
            if state.status is TaskStatus.FAILED:
                raise self._failure(state, mapping(state.fields.get("error")))
            if state.status is TaskStatus.CANCELLED:
                raise self._cancellation(state)
            has_answered = state.status is TaskStatus.INPUT_REQUIRED and await self._answer_questions(
                session, mapping(state.fields.get("inputRequests")), seconds
            )
            if not has_answered:
                await _wait_event(changed, state.poll_pause)

    async def _answer_questions(self, session: Session, questions: Mapping[str, Any], seconds: float) -> bool:
        """Answer the questions that are new, and send the answers. Returns False if there was none."""
        unsent = [key for key in questions if key not in self._sent_keys]
        if not unsent:
            return False
        new = [key for key in unsent if key not in self._answers]
        if len(self._answers) + len(new) > MAX_TASK_QUESTIONS:
            raise self._error(f"asked more than {MAX_TASK_QUESTIONS} questions for one task")
        answers = await asyncio.gather(
            *(session.answer_input_request(key, mapping(questions[key]), self._peer) for key in new)
        )
        self._answers.update(zip(new, answers, strict=True))
        params = {"taskId": self.id, "inputResponses": {key: self._answers[key] for key in unsent}}
        await self._request(session, "tasks/update", params, seconds, Delivery())
        self._sent_keys.update(unsent)
        return True

    async def _wait_legacy(
        self, session: Session, changed: asyncio.Event, seconds: float, reserved: Reservation, requests: TaskSet
    ) -> Message:
        result_request: asyncio.Task[Message] | None = None
        asked = 0
        while True:
            state = await self._poll(session, changed, seconds, Delivery())
            if state.status is TaskStatus.CANCELLED:
                raise self._cancellation(state)
            if state.status in _FINAL:
                if result_request is None:
                    return await self._finish_legacy(state, self._request_result(session, seconds, reserved))
                return await self._finish_legacy(state, asyncio.wait_for(result_request, POLL_TIMEOUT))
            if state.status is TaskStatus.INPUT_REQUIRED and result_request is None:
                # The server asks during this request, which lasts as long as the task: polling shows that it lives.
                asked += 1
                if asked > MAX_TASK_QUESTIONS:
                    raise self._error(f"asked for input {asked} times for one task")
                result_request = requests.start(self._request_result(session, None, reserved))
            await _wait_event(changed, state.poll_pause, result_request)
            if result_request is not None and result_request.done():
                if not isinstance(result_request.exception(), MCPProtocolError):
                    self.is_ended = True
                    return result_request.result()
                # A server that does not let this request wait: its questions come on another stream.
                result_request = None

    async def _finish_legacy(self, state: TaskState, result_request: Awaitable[Message]) -> Message:
        """Return the result of a task that has ended. That of a failed one is marked as an error."""
        self.silent_since = asyncio.get_running_loop().time()
        try:
            result = await result_request
        except TimeoutError:
            raise self._error("does not give the result of a task that has ended") from None
        except MCPProtocolError as error:
            if state.status is TaskStatus.FAILED:
                raise self._failure(state, {"message": _cause_of(error), **error.details}) from error
            raise self._refused_error("tasks/result", error) from error
        return {**result, "isError": True} if state.status is TaskStatus.FAILED else result

    def _request_result(
        self, session: Session, seconds: float | None, reserved: Reservation
    ) -> Coroutine[Any, Any, Message]:
        delivery = Delivery(reserved=reserved)
        return session.request("tasks/result", {"taskId": self.id}, seconds=seconds, delivery=delivery, peer=self._peer)

    async def _poll(self, session: Session, changed: asyncio.Event, seconds: float, delivery: Delivery) -> TaskState:
        # Before the request: a change from now on may not be in its answer.
        changed.clear()
        answer = await self._request(session, "tasks/get", {"taskId": self.id}, seconds, delivery)
        # Some servers answer with the object that they use for a new task.
        fields = answer if "status" in answer else mapping(answer.get("task"))
        state = _parse_state({"taskId": self.id, **fields}, self._errors)
        if state.task_id != self.id:
            raise self._error("answered with the state of another task")
        self.is_ended = state.status in _FINAL
        self.report(state)
        return state

    async def _request(
        self, session: Session, method: str, params: Mapping[str, Any], seconds: float, delivery: Delivery
    ) -> Message:
        if self.silent_since is None:
            self.silent_since = asyncio.get_running_loop().time()
        try:
            answer = await session.request(
                method, params, seconds=min(seconds, POLL_TIMEOUT), delivery=delivery, peer=self._peer
            )
        except MCPProtocolError as error:
            raise self._lost_error(error) if _is_unknown_task(error) else self._refused_error(method, error) from error
        self.silent_since = None
        return answer

    def _failure(self, state: TaskState, error: Mapping[str, Any]) -> MCPProtocolError:
        self.is_ended = True
        told = [state.message, self._errors.excerpt(str(error.get("message") or ""))]
        code = error.get("code")
        reason = ": ".join(dict.fromkeys(filter(None, told))) or "the server did not say why"
        known_code = code if isinstance(code, int) else None
        return self._errors.protocol("call", f"the task failed: {reason}", code=known_code, is_public=True)

    def _cancellation(self, state: TaskState) -> MCPProtocolError:
        reason = f": {state.message}" if state.message else ""
        text = f"the server cancelled the task{reason.rstrip('.')}. {OUTCOME_UNKNOWN}"
        return self._errors.protocol("call", text, outcome="unknown", is_public=True)

    def _lost_error(self, error: MCPProtocolError) -> MCPProtocolError:
        self.is_ended = True
        age = None if self._created_at is None else asyncio.get_running_loop().time() - self._created_at
        is_expired = self._ttl is not None and age is not None and age >= self._ttl
        expired = f" Its time to live of {self._ttl:g} s is over." if is_expired else ""
        return self._error(f"does not know the task any more ({_cause_of(error)}).{expired}", task_lost=True)

    def _refused_error(self, method: str, error: MCPProtocolError) -> MCPProtocolError:
        text = f"refused {method} for the task: {_cause_of(error)}"
        # Without a code it is no error of the server, but something that may contain anything.
        code = error.details.get("code")
        return self._error(text, code=code, is_public=code is not None)

    def _error(self, text: str, **details: Any) -> MCPProtocolError:
        return _build_error(self._errors, text, **details)


def _build_error(errors: ErrorFactory, text: str, **details: Any) -> MCPProtocolError:
    """Build the error of a server that broke the protocol: the call was sent, and its outcome is unknown."""
    ended = text if text.endswith(".") else f"{text}."
    return errors.protocol(
        "call", f"it {ended} {OUTCOME_UNKNOWN}", **{"outcome": "unknown", "is_public": True, **details}
    )


def _parse_state(fields: Mapping[str, Any], errors: ErrorFactory) -> TaskState:
    """Return the state in an answer. Raises MCPProtocolError for one without a usable id or status."""
    task_id, status, message = fields.get("taskId"), fields.get("status"), fields.get("statusMessage")
    if not isinstance(task_id, str) or not task_id:
        raise _build_error(errors, "answered with a task that has no id")
    if len(task_id) > MAX_TASK_ID_CHARS:
        text = f"answered with a task whose id has more than {MAX_TASK_ID_CHARS} characters"
        raise _build_error(errors, text)
    if status not in tuple(TaskStatus):
        raise _build_error(errors, f"gave a task the unknown status {str(status)[:50]!r}")
    poll = _parse_milliseconds(fields.get("pollInterval", fields.get("pollIntervalMs")))
    return TaskState(
        task_id=task_id,
        status=TaskStatus(status),
        message=errors.excerpt(message, MAX_STATUS_CHARS) if isinstance(message, str) else "",
        poll_pause=DEFAULT_POLL if poll is None else min(max(poll, MIN_POLL), MAX_POLL),
        ttl=_parse_milliseconds(fields.get("ttl", fields.get("ttlMs"))),
        fields=fields,
    )


def _parse_milliseconds(value: object) -> float | None:
    """Return seconds; None for a value that is no time."""
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _cause_of(error: MCPProtocolError) -> str:
    """Return the text of an error without its server and phase, which another error names already."""
    return str(error).removeprefix(f"Server '{error.server}' ({error.phase}): ")


def _is_unknown_task(error: MCPProtocolError) -> bool:
    return error.details.get("code") in (INVALID_PARAMS, METHOD_NOT_FOUND)


async def _wait_event(changed: asyncio.Event, seconds: float, other: asyncio.Task[Any] | None = None) -> None:
    """Wait until the event is set or `other` has ended, at most `seconds`."""
    # Announcements in a burst share one poll.
    await asyncio.sleep(min(MIN_POLL, seconds))
    waits = TaskSet()
    waiting: set[asyncio.Task[Any]] = {waits.start(changed.wait())}
    if other is not None:
        waiting.add(other)
    try:
        await asyncio.wait(waiting, timeout=seconds - MIN_POLL, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await waits.close(NOTICE_TIMEOUT)
