"""Output items that are still being written: text, reasoning, and calls of the client's tools.

Creating one announces the item to the client, `append` streams a delta, and `close` ends it and returns the finished
item, whose content is exactly what was streamed. The caller stores the finished item.
"""

from __future__ import annotations

from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.item_ids import custom_id_of, search_id_of
from holodeck.gateway.wire.request.tools import ClientToolAlias, arguments_to_text
from holodeck.gateway.wire.response.event_encoder import EventEncoder, WireItem
from holodeck.gateway.wire.response.output_items import ItemEvents, OutputItems, PartEvents, PartKind, TextEvents
from holodeck.lib.json.parse import parse_json


def build_message(item_id: str, content: list[WireItem], status: str = "completed") -> WireItem:
    """Return a message of the assistant."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def build_text_part(text: str, logprobs: list[WireItem]) -> WireItem:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


class OpenMessage:
    """A message of the assistant. Its one part is a text or a refusal. It builds no events for a silent encoder."""

    def __init__(
        self,
        encoder: EventEncoder,
        index: int,
        item_id: str,
        *,
        is_refusal: bool = False,
        has_logprobs: bool = False,
    ) -> None:
        """`has_logprobs`: the tokens of the text have log probabilities. A refusal never has them in this API."""
        has_logprobs = has_logprobs and not is_refusal
        self.is_refusal = is_refusal
        self.output_index = index
        self._id = item_id
        self._events = ItemEvents(encoder, index, item_id)
        self._part = PartEvents(self._events, "refusal" if is_refusal else "output_text", has_logprobs=has_logprobs)
        self.append = self._part.append_tokens if has_logprobs else self._part.append
        """Streams a delta. Not a method of its own, which would be one more call for each word of a model."""
        self.append_all = self._part.append_all
        """Streams several deltas without log probabilities."""
        self.append_tokens = self._part.append_tokens
        """Streams a delta with log probabilities, of a message that has them."""
        if not encoder.is_silent:
            self._events.start(build_message(item_id, [], "in_progress"))
            self._part.start(self._build_part(""))

    def close(self, status: str = "completed") -> WireItem:
        part = self._build_part(self._part.text)
        item = build_message(self._id, [part], status)
        if not self._events.encoder.is_silent:
            self._part.finish_part(part)
            self._events.finish(item)
        return item

    def _build_part(self, text: str) -> WireItem:
        if self.is_refusal:
            return {"type": "refusal", "refusal": text}
        return build_text_part(text, self._part.logprobs)


class OpenReasoning:
    """A reasoning item. Its text is a summary for a client that asked for one, and content otherwise."""

    def __init__(
        self, encoder: EventEncoder, index: int, item_id: str, *, client_kind: ClientKind, is_summary: bool
    ) -> None:
        self.output_index = index
        self._item: WireItem = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": []}
        self._is_summary = is_summary
        self._events = ItemEvents(encoder, index, item_id)
        self._kind: PartKind = "summary_text" if is_summary else "reasoning_text"
        self._part = PartEvents(self._events, self._kind, client_kind=client_kind)
        self._events.start(self._item)

    def append(self, text: str) -> None:
        if text and self._part.is_empty:
            self._part.start(self._build_part(""))
        self._part.append(text)

    def close(self, status: str = "completed", encrypted: str | None = None) -> WireItem:
        item = {**self._item, "status": status}
        if not self._part.is_empty:
            part = self._build_part(self._part.text)
            item["summary" if self._is_summary else "content"] = [part]
            self._part.finish_part(part)
        if encrypted is not None:
            item["encrypted_content"] = encrypted
        self._events.finish(item)
        return item

    def _build_part(self, text: str) -> WireItem:
        return {"type": self._kind, "text": text}


class OpenClientCall:
    """A call of a tool that the client runs. Collects the arguments; `close` depends on the form of the tool."""

    def __init__(self, output: OutputItems, item: WireItem, namespace: str | None = None) -> None:
        self.output_index = output.reserve(item["id"])
        self._item = item if namespace is None else {**item, "namespace": namespace}
        self._events = ItemEvents(output.encoder, self.output_index, item["id"])
        self._arguments: list[str] = []
        self._events.start(self._item)

    @property
    def is_complete(self) -> bool:
        """True once the arguments are valid JSON, so that no more of them can follow."""
        return _is_json("".join(self._arguments))

    def append(self, arguments: str) -> None:
        self._arguments.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        raise NotImplementedError

    def _finish(self, **fields: object) -> WireItem:
        item = {**self._item, **fields}
        self._events.finish(item)
        return item


class OpenFunctionCall(OpenClientCall):
    """A call of a function. Its arguments are streamed."""

    def __init__(
        self, output: OutputItems, item_id: str, call_id: str, name: str, namespace: str | None = None
    ) -> None:
        item = {"id": item_id, "type": "function_call", "status": "in_progress", "call_id": call_id, "name": name}
        super().__init__(output, {**item, "arguments": ""}, namespace)
        self._text = TextEvents(output.encoder, "response.function_call_arguments", self._events.position)

    def append(self, arguments: str) -> None:
        super().append(arguments)
        self._text.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        arguments = self._text.text
        self._text.finish(name=self._item["name"], arguments=arguments)
        return self._finish(status=status, arguments=arguments)


class OpenCustomCall(OpenClientCall):
    """A call of a tool that takes text.

    The model writes the text as the argument of a function, so it is known, and streamed, only at the end.
    """

    def __init__(self, output: OutputItems, item_id: str, call_id: str, alias: ClientToolAlias) -> None:
        item = {"id": custom_id_of(item_id), "type": "custom_tool_call", "status": "in_progress", "call_id": call_id}
        super().__init__(output, {**item, "name": alias.name, "input": ""}, alias.namespace)

    def close(self, status: str = "completed") -> WireItem:
        text = arguments_to_text("".join(self._arguments))
        self._events.emit_text("response.custom_tool_call_input", text, input=text)
        return self._finish(status=status, input=text)


class OpenToolSearch(OpenClientCall):
    """A search for tools. Its arguments are an object, which the API does not stream."""

    def __init__(self, output: OutputItems, item_id: str, call_id: str) -> None:
        item = {"id": search_id_of(item_id), "type": "tool_search_call", "status": "in_progress", "call_id": call_id}
        super().__init__(output, {**item, "execution": "client", "arguments": {}})

    def close(self, status: str = "completed") -> WireItem:
        text = "".join(self._arguments)
        return self._finish(status=status, arguments=parse_json(text) if _is_json(text) else {"query": text})


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True
