"""`reference/events.md`: the events of a run, as each interface streams them, with a recorded run."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import tempfile
import typing
from pathlib import Path

from generate.markdown import NOTICE, code, fence, join_blocks, table
from holodeck import load_agent
from holodeck.cli.output.events_json import event_line
from holodeck.gateway.openapi.schemas.event_schemas import EVENT_KINDS, EventKind
from holodeck.gateway.wire.chat.request import read_chat_request
from holodeck.gateway.wire.chat.response import ChatWriter
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.response.output_items import SSE_DONE, encode_sse
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.models.events import Event

_AGENT = """\
# agent.yaml
name: grocer
instructions: Answer with the prices.
tools:
  - name: price_of
    type: function
    description: Looks up the price of a fruit
    file: tools/prices.py
    function: price_of"""
_TOOL = '''\
# tools/prices.py
def price_of(fruit: str) -> str:
    """Return the price of a fruit."""
    return f"{fruit}: 2 EUR"'''
_GATEWAY = """\
# gateway.yaml
agents:
  - file: agent.yaml"""
_QUESTION = 'Call price_of with fruit "apple"'
_CURL = """\
curl -sN localhost:8080/v1/{route} \\
  -H 'content-type: application/json' \\
  -d '{body}'"""

_INTRO = """\
Follow a run while it happens: over HTTP, in the terminal, or in Python. Each section streams the same run of this
agent, whose model is the built-in rehearsal."""

_RESPONSE_RULES = """\
You can rely on this order:

- `sequence_number` counts from 0 without gaps. If the connection breaks, continue a stored response with
  `GET /v1/responses/{id}?stream=true&starting_after=NUMBER`.
- `response.created` is first. Then comes `response.in_progress`; a background response has `response.queued` before it.
- Each item begins with `response.output_item.added` and ends with `response.output_item.done`. Its events between them
  have its `item_id` and `output_index`; events of other items may come in between. The texts of the deltas, joined, are
  the text of the `.done` event.
- `response.in_progress` comes again in a durable background response when a turn begins anew: its model broke off in
  the middle of an answer, or its gateway died. Items that the `response` in this event does not have are void: those
  that had begun end with the status `incomplete`, and are not in the output at the end. If the gateway dies a moment
  after that, the event comes later: before the next turn, or at the end. No `output_index` is announced twice.
- One of `response.completed`, `response.incomplete` and `response.failed` is the last event. It has the whole response.
  After it, `data: [DONE]` ends the stream. (Only a background response that cannot be stored ends with `error`.)
- If a stream ends without `data: [DONE]`, the connection was cut: the response may be going on.
- Lines that begin with `:` keep the connection open. Every SSE client skips them.

Clients that are not OpenAI's get `response.reasoning.delta` and `.done` instead of `response.reasoning_text.delta` and
`.done`. On a WebSocket each event is one message, without `event:` and `data:`."""

_CHAT_RULES = """\
A chunk has no name and no number. The first one has the role, the last one a `finish_reason`, and `data: [DONE]` ends
the stream. Calls that the gateway runs do not appear; calls of your own functions come as `tool_calls`. With
`"stream_options": {"include_usage": true}` one more chunk has the tokens and no choices. A run that fails ends with
`data: {"error": {...}}`."""

_RUN_RULES = """\
Each line is one JSON object. `run.started` is first and `run.finished` last, with the result. A turn is one request to
the model: its texts and calls come after its `turn.started`. The events of calls that run at the same time are mixed;
`call_id` tells them apart."""

_PYTHON = """\
import asyncio

import holodeck


async def main():
    async with holodeck.load_agent("agent.yaml") as agent:
        async for event in agent.stream('{question}'):
            match event.type:
                case "text.added":
                    print(event.text, end="")
                case "tool.finished":
                    print("finished:", event.name)
                case "run.finished":
                    print("\\nstatus:", event.result.status)


asyncio.run(main())"""
_PYTHON_OUTPUT = """\
finished: price_of
[rehearsal] `price_of` answered: apple: 2 EUR
status: completed"""

_SEE_ALSO = """\
## See also

- [HTTP API](http-api.md)
- [Errors](errors.md)"""


def build_page() -> str:
    """Return the page. Runs the agent of the page once, and writes its events in each form."""
    events = asyncio.run(_record_run())
    response_body = f'{{"model": "grocer", "input": {_quote(_QUESTION)}, "stream": true}}'
    chat_body = (
        f'{{"model": "grocer", "messages": [{{"role": "user", "content": {_quote(_QUESTION)}}}], "stream": true}}'
    )
    return join_blocks(
        [
            "# Events",
            NOTICE,
            _INTRO,
            fence(_TOOL, "python"),
            fence(_AGENT, "yaml"),
            "## Streams of `/v1/responses`",
            fence(_GATEWAY, "yaml"),
            fence("holodeck serve gateway.yaml &", "bash"),
            fence(_CURL.format(route="responses", body=response_body), "bash"),
            fence(_shorten(_response_stream(events))),
            _RESPONSE_RULES,
            table(("Event", "Meaning", "Fields beside `type` and `sequence_number`"), map(_kind_row, EVENT_KINDS)),
            "The [OpenAPI document](http-api.md) has the schema of each event.",
            "## Chunks of `/v1/chat/completions`",
            fence(_CURL.format(route="chat/completions", body=chat_body), "bash"),
            fence(_shorten(_chat_stream(events))),
            _CHAT_RULES,
            "## `holodeck run --events`",
            fence(f"holodeck run --events '{_QUESTION}'", "bash"),
            fence(_shorten("\n".join(event_line(number, event) for number, event in enumerate(events)))),
            _RUN_RULES,
            table(("Event", "Class in Python", "Meaning", "Fields"), map(_class_row, typing.get_args(Event))),
            "## Events in Python",
            fence(_PYTHON.format(question=_QUESTION), "python"),
            fence(_PYTHON_OUTPUT),
            "The classes are in `holodeck.models.events`, and their fields are those of the table above. "
            "Closing the iterator cancels the run.",
            _SEE_ALSO,
        ]
    )


async def _record_run() -> list[Event]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tools").mkdir()
        (folder / "agent.yaml").write_text(_AGENT)
        (folder / "tools" / "prices.py").write_text(_TOOL)
        async with load_agent(folder / "agent.yaml", environ={}) as agent:
            return [event async for event in agent.stream(_QUESTION)]


def _response_stream(events: list[Event]) -> str:
    request = read_request({"model": "grocer", "input": _QUESTION, "stream": True})
    writer = ResponseWriter(request, response_id="resp_0", created_at=0.0, model="grocer", client_kind="open_responses")
    written = [encode_sse([each]) for event in events for each in writer.feed(event)]
    return b"".join([*written, SSE_DONE]).decode()


def _chat_stream(events: list[Event]) -> str:
    messages = [{"role": "user", "content": _QUESTION}]
    request = read_chat_request({"model": "grocer", "messages": messages, "stream": True})
    writer = ChatWriter(request, completion_id="chatcmpl_0", created_at=0.0, model="grocer")
    written = writer.feed(*events)
    return b"".join([*written, SSE_DONE]).decode()


def _shorten(text: str) -> str:
    """Replace what differs from run to run, and the fields of a response that the request did not set."""
    text = re.sub(r'"([a-z]+)_[0-9a-f]+"', r'"\1_..."', text)
    text = re.sub(r'("seconds": ?)[\d.e-]+', r"\1...", text)
    text = re.sub(r'("(?:created|created_at|completed_at)": ?)\d+', r"\1...", text)
    text = re.sub(r'("usage": ?\{).*?\}\}', r"\1...}", text)
    text = re.sub(r'("model":"grocer",)"previous_response_id".*', r"\1...}}", text)
    return text.strip()


def _quote(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def _kind_row(kind: EventKind) -> tuple[str, ...]:
    return (code(kind.type), kind.about, ", ".join(code(name) for name in kind.fields))


def _class_row(generic: type) -> tuple[str, ...]:
    kind = typing.get_origin(generic) or generic
    fields = {field.name: field for field in dataclasses.fields(kind)}
    name = fields.pop("type").default
    meaning = " ".join((inspect.getdoc(kind) or "").split())
    return (code(str(name)), code(kind.__name__), meaning, ", ".join(code(each) for each in fields))
