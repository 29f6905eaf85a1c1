"""What each normal tool does, as actions: `answer_call` is a pure function of the call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holodeck.testing.mcp.actions import Action, Ask, Message, Notify, Push, Release, Reply, Wait, build_notification
from holodeck.testing.mcp.content import BLOCKS, text_block, tool_result
from holodeck.testing.mcp.faults import Era

INVALID_PARAMS = -32602
TOOL_BROKE = -32050
"""A code of this server's own, outside those that the protocol reserves."""
_REQUEST_STATE = "faulty-state/1 +=\u00e9"
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"

QUESTIONS: dict[str, tuple[str, str, Message]] = {
    "ask_sampling": (
        "sampling",
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": text_block("What is 2 + 2?")}], "maxTokens": 64},
    ),
    "ask_elicitation": (
        "elicitation",
        "elicitation/create",
        {
            "mode": "form",
            "message": "What is your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    ),
    "ask_roots": ("roots", "roots/list", {}),
}
"""For each tool that asks: the capability it needs, the method and the parameters of its question."""


class CallRefused(Exception):  # noqa: N818 - it becomes an error answer, it is none
    """The call is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One `tools/call`, with what a tool may need to answer it."""

    id: int | str
    name: str
    arguments: dict[str, Any]
    params: Message
    era: Era
    client: Message
    """The client's capabilities."""
    reply: Callable[[Message], Reply]
    """Makes the answer of a result."""


def answer_call(call: ToolCall) -> list[Action]:
    """Return what the tool does. Raises `CallRefused` where a JSON-RPC error is the answer."""
    match call.name:
        case name if name in BLOCKS:
            return [call.reply(tool_result(*BLOCKS[name]))]
        case name if name in QUESTIONS:
            return _ask_actions(call)
        case "slow":
            return _slow_actions(call)
        case "release":
            return [Release(), call.reply(tool_result(text_block("released")))]
        case "grow":
            return [Push("notifications/tools/list_changed"), call.reply(tool_result(text_block("grown")))]
        case "log":
            return _log_actions(call)
        case "protocol_error":
            raise CallRefused(int(call.arguments.get("code", TOOL_BROKE)), "The tool broke.")
        case _:
            return [call.reply(_plain_result(call))]


def _plain_result(call: ToolCall) -> Message:
    given = call.arguments
    match call.name:
        case "add":
            return _add_result(given)
        case "structured":
            blocks = [text_block('{"total":3}')] if given.get("text", True) else []
            return tool_result(*blocks, structuredContent={"total": 3})
        case "big":
            return tool_result(text_block("x" * int(given.get("bytes", 0))))
        case "fail":
            return tool_result(text_block(str(given.get("message", "It did not work."))), isError=True)
        case "regional":
            return tool_result(text_block(f"{given.get('region')}: {given.get('text', '')}"))
        case _:
            return tool_result(text_block(str(given.get("text", call.name))))


def _add_result(given: dict[str, Any]) -> Message:
    numbers: Iterable[Any] = (given.get("a"), given.get("b"))
    if not all(isinstance(number, int | float) for number in numbers):
        return tool_result(text_block("Give two numbers, a and b."), isError=True)
    return tool_result(text_block(str(given["a"] + given["b"])))


def _slow_actions(call: ToolCall) -> list[Action]:
    seconds = float(call.arguments.get("seconds", 1))
    steps = max(1, int(call.arguments.get("steps", 4)))
    token = call.params.get("_meta", {}).get("progressToken")
    actions: list[Action] = []
    for step in range(1, steps + 1):
        if token is not None:
            progress = {"progressToken": token, "progress": step, "total": steps, "message": f"step {step}"}
            actions.append(Notify(build_notification("notifications/progress", **progress)))
        actions.append(Wait(seconds / steps))
    return [*actions, call.reply(tool_result(text_block("done")))]


def _log_actions(call: ToolCall) -> list[Action]:
    level = str(call.arguments.get("level", "info"))
    said = str(call.arguments.get("text", f"a {level} message"))
    answer = call.reply(tool_result(text_block("logged")))
    if call.era == "modern" and _LOG_LEVEL not in call.params.get("_meta", {}):
        return [answer]
    return [Notify(build_notification("notifications/message", level=level, logger="faulty", data=said)), answer]


def _ask_actions(call: ToolCall) -> list[Action]:
    capability, method, params = QUESTIONS[call.name]
    if capability not in call.client and not call.arguments.get("anyway"):
        return [call.reply(tool_result(text_block(f"The client has no {capability}."), isError=True))]
    if call.era == "modern":
        return [call.reply(_input_required_result(call, method, params))]

    def reply_with_answer(answer: Message) -> list[Action]:
        said = answer["result"] if "result" in answer else {"error": answer.get("error")}
        return [call.reply(tool_result(text_block(json.dumps(said))))]

    question: Message = {"jsonrpc": "2.0", "id": f"ask-{call.id}", "method": method}
    return [Ask({**question, "params": params} if params else question, reply_with_answer)]


def _input_required_result(call: ToolCall, method: str, params: Message) -> Message:
    answers = call.params.get("inputResponses")
    if answers is None:
        return {
            "resultType": "input_required",
            "inputRequests": {"answer": {"method": method, "params": params} if params else {"method": method}},
            "requestState": _REQUEST_STATE,
        }
    if call.params.get("requestState") != _REQUEST_STATE:
        raise CallRefused(INVALID_PARAMS, "requestState is not the one that was sent.")
    return tool_result(text_block(json.dumps(answers.get("answer"))))
