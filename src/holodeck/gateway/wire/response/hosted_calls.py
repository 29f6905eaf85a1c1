"""Calls of hosted tools in the output of a response, each as the item that OpenAI's API has for it.

The gateway runs such a call with an MCP tool, whose arguments and result have any form. An item has what can be found
in them: the query or the code among the arguments, and URLs, texts, logs or an image in the result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from holodeck.gateway.wire.item_ids import action_id_of
from holodeck.gateway.wire.response.output_items import ItemEvents, OutputItems, WireItem
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, ImageContent, TextContent

FILE_RESULTS = "file_search_call.results"
WEB_SOURCES = "web_search_call.action.sources"
CODE_OUTPUTS = "code_interpreter_call.outputs"
# Sources in one item: as many as the largest pages of search results have.
_MAX_SOURCES = 100
_URL = re.compile(r"https?://[^\s\"'<>()\[\]{}\\]+")


@record
class HostedItemKind:
    """The form in which the calls of one hosted tool appear."""

    item_type: str
    id_prefix: str
    working_event: str
    """The event between the start of the call and its end."""
    abandoned_status: str
    """The status of a call whose run ended before its result: not every type knows `incomplete`."""


HOSTED_ITEM_KINDS: Mapping[str, HostedItemKind] = {
    "web_search": HostedItemKind(
        item_type="web_search_call", id_prefix="ws", working_event="searching", abandoned_status="failed"
    ),
    "file_search": HostedItemKind(
        item_type="file_search_call", id_prefix="fs", working_event="searching", abandoned_status="incomplete"
    ),
    "code_interpreter": HostedItemKind(
        item_type="code_interpreter_call", id_prefix="ci", working_event="interpreting", abandoned_status="incomplete"
    ),
    "image_generation": HostedItemKind(
        item_type="image_generation_call", id_prefix="ig", working_event="generating", abandoned_status="failed"
    ),
}
"""By the name of the hosted tool."""


class OpenHostedCall:
    """An item of a hosted tool that is being written. Creating it emits everything but the result."""

    def __init__(self, call: FunctionCall, output: OutputItems, *, server: str, include: Collection[str]) -> None:
        """`server`: the MCP server that runs the call. `include`: which results the client wants in the items."""
        self._output = output
        self._include = include
        kind = HOSTED_ITEM_KINDS[call.name]
        self._kind = kind
        self._item: WireItem = {
            "id": action_id_of(call.id or call.call_id, kind.id_prefix),
            "type": kind.item_type,
            "status": "in_progress",
            **_build_request_fields(call, server),
        }
        self._events = ItemEvents(output.encoder, output.reserve(self._item["id"]), self._item["id"])
        self._events.start(self._item)
        emit_hosted_start(self._events, self._item)

    def finish(self, output: FunctionCallOutput, metadata: Mapping[str, Any]) -> None:
        """Write the result. `metadata` is not used: these items have no place for the kind of an error."""
        result = {} if output.is_error else self._build_result_fields(output)
        # An image is all that such a call is for.
        is_failed = output.is_error or (self._item["type"] == "image_generation_call" and not result["result"])
        self._close("failed" if is_failed else "completed", **result)

    def abandon(self) -> None:
        """Close the item: the run has ended before the server answered."""
        self._close(self._kind.abandoned_status)

    def _build_result_fields(self, output: FunctionCallOutput) -> dict[str, Any]:
        text = "\n".join(part.text for part in output.content if isinstance(part, TextContent))
        images = [part for part in output.content if isinstance(part, ImageContent)]
        match self._item["type"]:
            case "web_search_call" if WEB_SOURCES in self._include:
                sources = [{"type": "url", "url": url} for url in find_urls(text)]
                return {"action": {**self._item["action"], "sources": sources}}
            case "file_search_call" if FILE_RESULTS in self._include:
                return {"results": _build_file_results(text)}
            case "code_interpreter_call" if CODE_OUTPUTS in self._include:
                logs = [{"type": "logs", "logs": text}] if text else []
                pictures = [{"type": "image", "url": f"data:{image.mime_type};base64,{image.data}"} for image in images]
                return {"outputs": [*logs, *pictures]}
            case "image_generation_call":
                return {"result": images[0].data if images else None}
        return {}

    def _close(self, status: str, **result: Any) -> None:
        item = {**self._item, "status": status, **result}
        emit_hosted_end(self._events, item)
        self._events.finish(item)
        self._output.put(self._events.output_index, item)


def emit_hosted_start(events: ItemEvents, item: WireItem) -> None:
    """Emit the events of a call of a hosted tool before its result."""
    kind = next(each for each in HOSTED_ITEM_KINDS.values() if each.item_type == item["type"])
    events.emit(f"response.{kind.item_type}.in_progress")
    if item["type"] == "code_interpreter_call":
        events.emit_text("response.code_interpreter_call_code", item["code"], code=item["code"])
    events.emit(f"response.{kind.item_type}.{kind.working_event}")


def emit_hosted_end(events: ItemEvents, item: WireItem) -> None:
    """Emit the event for the end of a call of a hosted tool. There is none for a failure."""
    if item["status"] == "completed":
        events.emit(f"response.{item['type']}.completed")


def _build_request_fields(call: FunctionCall, server: str) -> dict[str, Any]:
    """Return the fields of an item that are known when its call starts. The API has no other name for the container."""
    arguments = parse_arguments(call.arguments)
    if call.name == "web_search":
        return {"action": {"type": "search", "query": find_text(arguments, "query")}}
    if call.name == "file_search":
        sent = arguments.get("queries")
        queries = [each for each in sent if isinstance(each, str)] if isinstance(sent, list) else []
        return {"queries": queries or [find_text(arguments, "query")], "results": None}
    if call.name == "code_interpreter":
        return {"code": find_text(arguments, "code"), "container_id": server, "outputs": None}
    return {"result": None}


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call. Text that is no JSON object, as of an answer that was cut, has none."""
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def find_urls(text: str) -> list[str]:
    """Return the URLs in a text, each once."""
    return list(dict.fromkeys(url.rstrip(".,;:!?") for url in _URL.findall(text)))[:_MAX_SOURCES]


def find_text(arguments: Mapping[str, Any], name: str) -> str:
    """Return the argument of this name, or else the first one that is a text."""
    texts = (value for value in (arguments.get(name), *arguments.values()) if isinstance(value, str))
    return next(texts, "")


def _build_file_results(text: str) -> list[dict[str, Any]]:
    """Return the results of a file search: each object of a list in the result, or the whole text as one."""
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    found = value.get("results") if isinstance(value, dict) else value
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return [_build_file_result({"text": text})]
    return [_build_file_result(each) for each in found]


def _build_file_result(found: Mapping[str, Any]) -> dict[str, Any]:
    def text_of(*keys: str) -> str:
        return next((value for key in keys if isinstance(value := found.get(key), str)), "")

    score = found.get("score")
    return {
        "file_id": text_of("file_id", "id", "uri", "path"),
        "filename": text_of("filename", "title", "name", "path"),
        "score": score if isinstance(score, int | float) and not isinstance(score, bool) else 0,
        "text": text_of("text", "content", "snippet"),
        "attributes": {},
    }
