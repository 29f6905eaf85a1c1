"""Output items while they are being written: each announces itself, takes what comes, and closes as it was streamed."""

from __future__ import annotations

from holodeck.gateway.wire.client_kind import REASONING_EVENT_NAMES, ClientKind
from holodeck.gateway.wire.item_ids import custom_id_of, search_id_of
from holodeck.gateway.wire.request.tools import ClientToolAlias, arguments_to_text
from holodeck.gateway.wire.response.event_encoder import EventEncoder, WireItem
from holodeck.lib.json.parse import parse_json


class OpenMessage:
    """A message of the assistant, with one part: its text, or why it has none."""

    def __init__(self, encoder: EventEncoder, index: int, item_id: str, *, is_refusal: bool = False) -> None:
        self._encoder = encoder
        self.is_refusal = is_refusal
        self.output_index = index
        self._item: WireItem = {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant"}
        self._texts: list[str] = []
        self._delta_head = b""
        if encoder.is_silent:
            return
        self._position = {"item_id": item_id, "output_index": index, "content_index": 0}
        encoder.emit("response.output_item.added", output_index=index, item={**self._item, "content": []})
        encoder.emit("response.content_part.added", **self._position, part=self._build_part(""))
        if is_refusal:
            self._delta_head = encoder.build_delta_head("response.refusal.delta", **self._position)
        else:
            self._delta_head = encoder.build_delta_head("response.output_text.delta", **self._position, logprobs=[])

    def append(self, text: str) -> None:
        if not text:
            return
        self._texts.append(text)
        self._encoder.emit_delta(self._delta_head, text)

    def close(self, status: str = "completed") -> WireItem:
        text = "".join(self._texts)
        part = self._build_part(text)
        item = {**self._item, "status": status, "content": [part]}
        if self._encoder.is_silent:
            return item
        emit = self._encoder.emit
        if self.is_refusal:
            emit("response.refusal.done", **self._position, refusal=text)
        else:
            emit("response.output_text.done", **self._position, text=text, logprobs=[])
        emit("response.content_part.done", **self._position, part=part)
        emit("response.output_item.done", output_index=self.output_index, item=item)
        return item

    def _build_part(self, text: str) -> WireItem:
        return {"type": "refusal", "refusal": text} if self.is_refusal else _output_text_part(text)


class OpenReasoning:
    """Thoughts. They are shown as a summary to a client that asked for one."""

    def __init__(
        self, encoder: EventEncoder, index: int, item_id: str, *, client_kind: ClientKind, is_summary: bool
    ) -> None:
        self._encoder = encoder
        self.output_index = index
        self._item: WireItem = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": []}
        self._is_summary = is_summary
        where = "summary_index" if is_summary else "content_index"
        self._position = {"item_id": item_id, "output_index": index, where: 0}
        self._text_event = "response.reasoning_summary_text" if is_summary else REASONING_EVENT_NAMES[client_kind]
        self._part_event = "response.reasoning_summary_part" if is_summary else "response.content_part"
        self._texts: list[str] = []
        self._delta_head = encoder.build_delta_head(f"{self._text_event}.delta", **self._position)
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    def append(self, text: str) -> None:
        if not text:
            return
        if not self._texts:
            self._encoder.emit(f"{self._part_event}.added", **self._position, part=self._build_part(""))
        self._texts.append(text)
        self._encoder.emit_delta(self._delta_head, text)

    def close(self, status: str = "completed", encrypted: str | None = None) -> WireItem:
        item = {**self._item, "status": status}
        if self._texts:
            text = "".join(self._texts)
            part = self._build_part(text)
            item["summary" if self._is_summary else "content"] = [part]
            self._encoder.emit(f"{self._text_event}.done", **self._position, text=text)
            self._encoder.emit(f"{self._part_event}.done", **self._position, part=part)
        if encrypted is not None:
            item["encrypted_content"] = encrypted
        self._encoder.emit("response.output_item.done", output_index=self.output_index, item=item)
        return item

    def _build_part(self, text: str) -> WireItem:
        return {"type": "summary_text" if self._is_summary else "reasoning_text", "text": text}


class OpenCall:
    """A call of a function."""

    def __init__(
        self, encoder: EventEncoder, index: int, item_id: str, call_id: str, name: str, namespace: str | None = None
    ) -> None:
        self._encoder = encoder
        self.output_index = index
        self._position = {"item_id": item_id, "output_index": index}
        self._item: WireItem = {
            "id": item_id,
            "type": "function_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": name,
            "arguments": "",
        }
        if namespace is not None:
            self._item["namespace"] = namespace
        self._texts: list[str] = []
        self._delta_head = encoder.build_delta_head("response.function_call_arguments.delta", **self._position)
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are JSON by now, and so at their end."""
        return _is_json("".join(self._texts))

    def append(self, arguments: str) -> None:
        if not arguments:
            return
        self._texts.append(arguments)
        self._encoder.emit_delta(self._delta_head, arguments)

    def close(self, status: str = "completed") -> WireItem:
        arguments = "".join(self._texts)
        item = {**self._item, "status": status, "arguments": arguments}
        name = self._item["name"]
        emit = self._encoder.emit
        emit("response.function_call_arguments.done", **self._position, name=name, arguments=arguments)
        emit("response.output_item.done", output_index=self.output_index, item=item)
        return item


class OpenCustomCall:
    """A call of a tool that takes text. The model writes it as arguments, so it is read once they are whole."""

    def __init__(self, encoder: EventEncoder, index: int, item_id: str, call_id: str, alias: ClientToolAlias) -> None:
        self._encoder = encoder
        self.output_index = index
        self._position = {"item_id": custom_id_of(item_id), "output_index": index}
        self._item: WireItem = {
            "id": custom_id_of(item_id),
            "type": "custom_tool_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": alias.name,
            "input": "",
        }
        if alias.namespace is not None:
            self._item["namespace"] = alias.namespace
        self._texts: list[str] = []
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    @property
    def is_complete(self) -> bool:
        return _is_json("".join(self._texts))

    def append(self, arguments: str) -> None:
        self._texts.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        text = arguments_to_text("".join(self._texts))
        item = {**self._item, "status": status, "input": text}
        if text:
            self._encoder.emit_delta(
                self._encoder.build_delta_head("response.custom_tool_call_input.delta", **self._position), text
            )
        self._encoder.emit("response.custom_tool_call_input.done", **self._position, input=text)
        self._encoder.emit("response.output_item.done", output_index=self.output_index, item=item)
        return item


class OpenToolSearch:
    """A search for tools. What it looks for is an object, which has no parts."""

    def __init__(self, encoder: EventEncoder, index: int, item_id: str, call_id: str) -> None:
        self._encoder = encoder
        self.output_index = index
        self._item: WireItem = {
            "id": search_id_of(item_id),
            "type": "tool_search_call",
            "status": "in_progress",
            "call_id": call_id,
            "execution": "client",
            "arguments": {},
        }
        self._texts: list[str] = []
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    @property
    def is_complete(self) -> bool:
        return _is_json("".join(self._texts))

    def append(self, arguments: str) -> None:
        self._texts.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        text = "".join(self._texts)
        item = {**self._item, "status": status, "arguments": parse_json(text) if _is_json(text) else {"query": text}}
        self._encoder.emit("response.output_item.done", output_index=self.output_index, item=item)
        return item


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _output_text_part(text: str) -> WireItem:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
