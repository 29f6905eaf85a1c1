"""Faults in messages: pure functions from the actions of a correct answer to those of the fault."""

from __future__ import annotations

import json
from collections.abc import Callable

from holodeck.testing.mcp.actions import (
    Action,
    Die,
    Message,
    Notify,
    Push,
    Raw,
    Reply,
    Stay,
    Stderr,
    Wait,
    build_notification,
    encode,
)
from holodeck.testing.mcp.faults import BIG_EVENT_BYTES, FLOOD, HUGE_BYTES, LATE_SECONDS, NESTING, Fault
from holodeck.testing.mcp.tools import text_block, tool_result

Distortion = Callable[[list[Action]], list[Action]]

_HOLE = "HOLE"
_FATAL = "Traceback: the server ran out of luck"
_EXPECTED_INITIALIZE = 'Error: ExpectedInitializeRequest(Some(Request(CustomRequest { method: "server/discover" })))'
_PARSE_ERROR = -32700


def distort(fault: Fault, actions: list[Action]) -> list[Action]:
    """Return the actions under the fault; unchanged if it is not a fault in messages."""
    distortion = _DISTORTIONS.get(fault)
    return distortion(actions) if distortion else actions


def _replace_with(*actions: Action) -> Distortion:
    return lambda _: list(actions)


def _prepend(*actions: Action) -> Distortion:
    return lambda good: [*actions, *good]


def _append(*actions: Action) -> Distortion:
    return lambda good: [*good, *actions]


def _each_reply(change: Callable[[Message], Action]) -> Distortion:
    return lambda good: [change(action.message) if isinstance(action, Reply) else action for action in good]


def _replace_result(result: object) -> Distortion:
    return _each_reply(lambda message: Reply({"jsonrpc": "2.0", "id": message["id"], "result": result}))


def _extend_result(**more: object) -> Distortion:
    def change(message: Message) -> Action:
        return Reply({**message, "result": {**message.get("result", {}), **more}})

    return _each_reply(change)


def _replace_with_bytes(change: Callable[[Message], bytes]) -> Distortion:
    return _each_reply(lambda message: Raw(change(message)))


def _fill_hole(filling: bytes, *, quoted: bool) -> Distortion:
    hole = _HOLE.encode() if not quoted else json.dumps(_HOLE).encode()

    def change(message: Message) -> bytes:
        result = (
            tool_result(text_block(f"a {_HOLE}"))
            if not quoted
            else tool_result(text_block("deep"), structuredContent=_HOLE)
        )
        return encode({"jsonrpc": "2.0", "id": message["id"], "result": result}).replace(hole, filling)

    return _replace_with_bytes(change)


def _answer_twice(good: list[Action]) -> list[Action]:
    return [*good, *(action for action in good if isinstance(action, Reply))]


def _half_answer(good: list[Action]) -> list[Action]:
    def half(message: Message) -> Action:
        data = encode(message)
        return Raw(data[: len(data) // 2], ended=False)

    return [*_each_reply(half)(good), Stay()]


def _huge_answer(good: list[Action]) -> list[Action]:
    # Built on demand: 50 MB are too much for a constant.
    return _replace_result(tool_result(text_block("x" * HUGE_BYTES)))(good)


def _reply_with_wrong_id(message: Message) -> Action:
    return Reply({**message, "id": f"not-{message['id']}"})


def _reply_without_id(message: Message) -> Action:
    error = {"code": _PARSE_ERROR, "message": "Parse error"}
    return Reply({"jsonrpc": "2.0", "id": None, "error": error})


def _error_reply(message: Message) -> Action:
    error = {"code": -32603, "message": "Internal error", "data": {"reason": "out of luck"}}
    return Reply({"jsonrpc": "2.0", "id": message["id"], "error": error})


def _reply_with_unknown_version(message: Message) -> Action:
    result = message.get("result", {})
    if "supportedVersions" in result:
        data = {"supported": ["2999-01-01"], "requested": "2026-07-28"}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        return Reply({"jsonrpc": "2.0", "id": message["id"], "error": error})
    return Reply({**message, "result": {**result, "protocolVersion": "1999-01-01"}})


def _reply_without_task_id(message: Message) -> Action:
    result = message.get("result", {})
    nested = {**result.get("task", {}), "taskId": None}
    return Reply({**message, "result": {**result, "taskId": None, **({"task": nested} if "task" in result else {})}})


def _task_not_found_reply(message: Message) -> Action:
    error = {"code": -32602, "message": "Failed to retrieve task: Task not found"}
    return Reply({"jsonrpc": "2.0", "id": message["id"], "error": error})


_GARBAGE = (
    Raw(b"npm warn deprecated a-package@1.0.0: use another"),
    Raw(b"\x1b[32mServer listening on stdio\x1b[0m"),
    Raw(b""),
    Raw(b'{"jsonrpc": "2.0", "method":'),
    Raw(b"[1, 2"),
    Raw(b'"just a string"'),
    Raw(b'{"level": "info", "msg": "a log line in JSON"}'),
)
_UNKNOWN_BLOCK = {"type": "hologram", "shape": "cube", "data": "AAAA"}
_UNASKED: Message = {"jsonrpc": "2.0", "id": "unasked-1", "method": "unheard/of", "params": {}}
_STRAY_ANSWER: Message = {"jsonrpc": "2.0", "id": "never-asked", "result": tool_result(text_block("stray"))}
# More digits than Python converts to a number, and an id that is no key of a dictionary.
_STRAY_IDS = (Notify({**_STRAY_ANSWER, "id": "9" * 5_000}), Notify({**_STRAY_ANSWER, "id": [1]}))
_QUESTION = {
    "resultType": "input_required",
    "inputRequests": {"again": {"method": "roots/list"}},
    "requestState": "again",
}

_DISTORTIONS: dict[Fault, Distortion] = {
    Fault.DIES_AFTER_INIT: _append(Die(stderr=_FATAL)),
    Fault.DIES_MID_CALL: _replace_with(Die(stderr=_FATAL)),
    Fault.CRASH_LOOP: _replace_with(Die(stderr=_FATAL)),
    Fault.EXITS_ON_DISCOVER: _replace_with(Die(stderr=_EXPECTED_INITIALIZE)),
    Fault.SILENT_ON_DISCOVER: _replace_with(Stay()),
    Fault.HANGS_AT_START: _replace_with(Stay()),
    Fault.HANGS: _replace_with(Stay()),
    Fault.LATE: _prepend(Wait(LATE_SECONDS)),
    Fault.HUGE_STDERR: _prepend(Stderr(HUGE_BYTES)),
    Fault.ANSWERS_TWICE: _answer_twice,
    Fault.WRONG_ID: _each_reply(_reply_with_wrong_id),
    Fault.STRAY_ANSWER: _prepend(Notify(_STRAY_ANSWER), *_STRAY_IDS),
    Fault.ERROR_ID_NULL: _each_reply(_reply_without_id),
    Fault.GARBAGE: _prepend(*_GARBAGE),
    Fault.INVALID_UTF8: _fill_hole(b"caf\xe9", quoted=False),
    Fault.LONE_SURROGATE: _fill_hole(b"\\ud83d half", quoted=False),
    Fault.DEEP_NESTING: _fill_hole(b"[" * NESTING + b"]" * NESTING, quoted=True),
    Fault.PRETTY_PRINTED: _replace_with_bytes(lambda message: json.dumps(message, indent=2).encode()),
    Fault.BATCH: _replace_with_bytes(lambda message: b"[" + encode(message) + b"]"),
    Fault.UNFINISHED: _half_answer,
    Fault.HUGE_LINE: _huge_answer,
    Fault.UNASKED: _prepend(Notify(_UNASKED), Notify(build_notification("notifications/unheard_of", x=1))),
    Fault.FLOOD: _prepend(Push("notifications/tools/list_changed", FLOOD)),
    Fault.PROTOCOL_ERROR: _each_reply(_error_reply),
    Fault.UNKNOWN_VERSION: _each_reply(_reply_with_unknown_version),
    Fault.UNKNOWN_CONTENT: _extend_result(content=[text_block("known"), _UNKNOWN_BLOCK]),
    Fault.EMPTY_CONTENT: _extend_result(content=[]),
    Fault.MISSING_CONTENT: _replace_result({}),
    Fault.NULL_CONTENT: _extend_result(content=None),
    Fault.ERROR_RESULT: _extend_result(content=[text_block("The disk is full.")], isError=True),
    Fault.NOT_A_RESULT: _replace_result("a string"),
    Fault.SCHEMA_MISMATCH: _extend_result(structuredContent={"total": "three"}),
    Fault.UNKNOWN_RESULT_TYPE: _extend_result(resultType="x-unheard-of"),
    Fault.ENDLESS_INPUT: _replace_result(_QUESTION),
    Fault.TASK_WITHOUT_ID: _each_reply(_reply_without_task_id),
    Fault.TASK_FORGOTTEN: _each_reply(_task_not_found_reply),
    Fault.TASK_SWAPPED: _extend_result(taskId="task-of-somebody-else"),
    Fault.TASK_BAD_STATUS: _extend_result(status=7),
    Fault.TASK_WITHOUT_RESULT: _extend_result(status="completed", result=None),
    Fault.BIG_EVENT: _replace_result(tool_result(text_block("x" * BIG_EVENT_BYTES))),
    # The faults of HTTP bodies, on a stream that carries both directions
    Fault.CUT_STREAM: _replace_with(Die()),
    Fault.STREAM_ENDS: _replace_with(Die()),
    Fault.TRICKLE: _half_answer,
}
