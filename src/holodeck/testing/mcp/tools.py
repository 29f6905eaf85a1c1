"""The normal tools and prompts of the server: their entries in lists, and the actions with which tools answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holodeck.lib.record import record
from holodeck.testing.mcp.actions import Action, Ask, Message, Notify, Push, Release, Reply, Wait, build_notification
from holodeck.testing.mcp.faults import Era

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of one pixel, in base64."""
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
"""A WAV without samples, in base64."""
BLOB = "AAECAwT/"
"""The bytes 0, 1, 2, 3, 4, 255, in base64."""

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
SERVER_INFO = {"name": "faulty", "version": "1.0"}
INSTRUCTIONS = "A server for tests. It may misbehave."

_NUMBER = {"type": "number"}
_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}

INVALID_PARAMS = -32602
TOOL_BROKE = -32050
"""An error code of this server, outside those that the protocol reserves."""
_REQUEST_STATE = "faulty-state/1 +=\u00e9"
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


def text_block(value: str) -> Message:
    """Return a text block."""
    return {"type": "text", "text": value}


IMAGE: Message = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Message = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
RESOURCE_TEXT: Message = {
    "type": "resource",
    "resource": {"uri": "test://notes.txt", "mimeType": "text/plain", "text": "notes"},
}
RESOURCE_BLOB: Message = {
    "type": "resource",
    "resource": {"uri": "test://data.bin", "mimeType": "application/octet-stream", "blob": BLOB},
}
RESOURCE_LINK: Message = {
    "type": "resource_link",
    "uri": "test://far.pdf",
    "name": "far.pdf",
    "mimeType": "application/pdf",
}

BLOCKS: dict[str, list[Message]] = {
    "image": [IMAGE],
    "audio": [AUDIO],
    "resource_text": [RESOURCE_TEXT],
    "resource_blob": [RESOURCE_BLOB],
    "resource_link": [RESOURCE_LINK],
    "many_blocks": [text_block("first"), IMAGE, AUDIO, RESOURCE_TEXT, RESOURCE_BLOB, RESOURCE_LINK, text_block("last")],
}
"""The results of tools that always answer the same."""


def tool_result(*blocks: Message, **more: Any) -> Message:
    """Return a tool result with these blocks."""
    return {"content": list(blocks), **more}


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
"""For each tool that asks the client: the required capability, and the method and parameters of the request."""


class CallRefused(Exception):  # noqa: N818 - it becomes an error answer, it is none
    """The call is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@record
class ToolCall:
    """One `tools/call`, with what a tool needs to answer it."""

    id: int | str
    name: str
    arguments: dict[str, Any]
    params: Message
    era: Era
    client: Message
    """The client's capabilities."""
    reply: Callable[[Message], Reply]
    """Wraps a result in the answer to this call."""


def answer_call(call: ToolCall) -> list[Action]:
    """Return the actions of the tool, without I/O. Raises `CallRefused` if the answer is a JSON-RPC error."""
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
    arguments = call.arguments
    match call.name:
        case "add":
            return _add_result(arguments)
        case "structured":
            blocks = [text_block('{"total":3}')] if arguments.get("text", True) else []
            return tool_result(*blocks, structuredContent={"total": 3})
        case "big":
            return tool_result(text_block("x" * int(arguments.get("bytes", 0))))
        case "fail":
            return tool_result(text_block(str(arguments.get("message", "It did not work."))), isError=True)
        case "regional":
            return tool_result(text_block(f"{arguments.get('region')}: {arguments.get('text', '')}"))
        case _:
            return tool_result(text_block(str(arguments.get("text", call.name))))


def _add_result(arguments: dict[str, Any]) -> Message:
    numbers: Iterable[Any] = (arguments.get("a"), arguments.get("b"))
    if not all(isinstance(number, int | float) for number in numbers):
        return tool_result(text_block("Give two numbers, a and b."), isError=True)
    return tool_result(text_block(str(arguments["a"] + arguments["b"])))


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
    return [*actions, call.reply(tool_result(text_block(str(call.arguments.get("text", "done")))))]


def _log_actions(call: ToolCall) -> list[Action]:
    level = str(call.arguments.get("level", "info"))
    text = str(call.arguments.get("text", f"a {level} message"))
    answer = call.reply(tool_result(text_block("logged")))
    if call.era == "modern" and _LOG_LEVEL not in call.params.get("_meta", {}):
        return [answer]
    return [Notify(build_notification("notifications/message", level=level, logger="faulty", data=text)), answer]


def _ask_actions(call: ToolCall) -> list[Action]:
    capability, method, params = QUESTIONS[call.name]
    if "url" in call.arguments:
        params = {"mode": "url", "message": "Visit this page.", "elicitationId": "page-1", "url": call.arguments["url"]}
    if capability not in call.client and not call.arguments.get("anyway"):
        return [call.reply(tool_result(text_block(f"The client has no {capability}."), isError=True))]
    if call.era == "modern":
        return [call.reply(_input_required_result(call, method, params))]

    def reply_with_answer(answer: Message) -> list[Action]:
        content = answer["result"] if "result" in answer else {"error": answer.get("error")}
        return [call.reply(tool_result(text_block(json.dumps(content))))]

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


def tool_entry(
    name: str, description: str, properties: Message | None = None, required: tuple[str, ...] = ()
) -> Message:
    """Return a tool as an entry of a list."""
    schema: Message = {"type": "object", "properties": properties or {}}
    if required:
        schema["required"] = list(required)
    return {"name": name, "description": description, "inputSchema": schema}


def _structured_tool() -> Message:
    tool = tool_entry("structured", "A total as structured content, with or without text.", {"text": _BOOLEAN})
    tool["outputSchema"] = {"type": "object", "properties": {"total": _INTEGER}, "required": ["total"]}
    return tool


def _regional_tool() -> Message:
    region = {"type": "string", "x-mcp-header": "Region"}
    return tool_entry("regional", "Says the region, which is also a header.", {"region": region, "text": _STRING})


_ANYWAY = {"anyway": _BOOLEAN}
_TOOLS = (
    tool_entry("add", "Adds two numbers.", {"a": _NUMBER, "b": _NUMBER}, ("a", "b")),
    tool_entry("echo", "Says the text again.", {"text": _STRING}, ("text",)),
    tool_entry(
        "slow",
        "Answers with the text after some seconds, or when released.",
        {"seconds": _NUMBER, "steps": _INTEGER, "text": _STRING},
    ),
    tool_entry("release", "Ends every slow call and every task at once."),
    tool_entry("image", "A picture of one pixel."),
    tool_entry("audio", "A sound of no length."),
    tool_entry("resource_text", "An embedded text resource."),
    tool_entry("resource_blob", "An embedded binary resource."),
    tool_entry("resource_link", "A link to a resource."),
    tool_entry("many_blocks", "One block of every kind."),
    _structured_tool(),
    tool_entry("big", "A text of some number of bytes.", {"bytes": _INTEGER}, ("bytes",)),
    tool_entry("fail", "Fails, and says so in its result.", {"message": _STRING}),
    tool_entry("protocol_error", "Answers with a JSON-RPC error.", {"code": _INTEGER}),
    tool_entry("log", "Sends a log message at a level.", {"level": _STRING, "text": _STRING}),
    tool_entry("ask_sampling", "Asks the client's model.", _ANYWAY),
    tool_entry("ask_elicitation", "Asks the person at the client.", {**_ANYWAY, "url": _STRING}),
    tool_entry("ask_roots", "Asks for the client's roots.", _ANYWAY),
    tool_entry("grow", "Adds a tool and tells the client."),
    tool_entry("weird.name/x y", "Has a name with special characters.", {"text": _STRING}),
)

_TASK_PROPERTIES = {
    "text": _STRING,
    "polls": _INTEGER,
    "poll_ms": _INTEGER,
    "ttl_ms": _INTEGER,
    "bytes": _INTEGER,
    "hold": _BOOLEAN,
    "ask": _BOOLEAN,
    "error": _BOOLEAN,
    "end": _STRING,
}
TASK_TOOLS = {"task": "required", "optional_task": "optional"}
"""By name, the task support of the tools that run as tasks."""


def _task_entries(era: Era) -> list[Message]:
    about = "Works for some polls, or until released; can ask, fail or be cancelled."
    entries = [tool_entry(name, about, _TASK_PROPERTIES) for name in TASK_TOOLS]
    if era == "modern":
        return entries
    return [{**each, "execution": {"taskSupport": TASK_TOOLS[each["name"]]}} for each in entries]


_REVIEW = {
    "name": "review",
    "description": "Asks for a review of some code.",
    "arguments": [{"name": "code", "description": "What to review.", "required": True}],
}
_GREET = {"name": "greet", "description": "Says hello."}


def list_tool_entries(era: Era, added_tools: Sequence[str] = ()) -> list[Message]:
    """Return the tools of an era and the added ones, as entries of a list."""
    own = [*_TOOLS, *_task_entries(era), *([_regional_tool()] if era == "modern" else [])]
    return own + [tool_entry(name, "Was added while the server ran.") for name in added_tools]


def list_prompt_entries() -> list[Message]:
    """Return the prompts as entries of a list."""
    return [_REVIEW, _GREET]


def prompt_text(name: str, arguments: dict[str, Any]) -> str | None:
    """Return the text of a prompt; None if the prompt or its argument is missing."""
    if name == "greet":
        return "Say hello to the user."
    if name == "review" and isinstance(arguments.get("code"), str):
        return f"Review this code:\n{arguments['code']}"
    return None


def server_capabilities(era: Era, *, has_tasks: bool) -> Message:
    """Return the capabilities of the server."""
    tasks: Message = {}
    if has_tasks and era == "legacy":
        tasks = {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
    elif has_tasks:
        tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    return {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
        **tasks,
    }
