"""Output items while they are being written: each announces itself, takes what comes, and closes as it was streamed."""

from __future__ import annotations

from holodeck.gateway.wire.dialects import REASONING_NAMES, Dialect
from holodeck.gateway.wire.encoder import Encoder
from holodeck.gateway.wire.guises import Guise, text_of
from holodeck.gateway.wire.ids import custom_id_of, search_id_of
from holodeck.gateway.wire.output import WireItem
from holodeck.lib.bounded_json import parse_json


class OpenMessage:
    """A message of the assistant, with one part: its text, or why it has none."""

    def __init__(self, encoder: Encoder, index: int, item_id: str, *, is_refusal: bool = False) -> None:
        self._encoder = encoder
        self.is_refusal = is_refusal
        self.place = index
        self._item: WireItem = {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant"}
        self._texts: list[str] = []
        self._head = b""
        if encoder.is_silent:
            return
        self._at = {"item_id": item_id, "output_index": index, "content_index": 0}
        encoder.emit("response.output_item.added", output_index=index, item={**self._item, "content": []})
        encoder.emit("response.content_part.added", **self._at, part=self._part(""))
        if is_refusal:
            self._head = encoder.head("response.refusal.delta", **self._at)
        else:
            self._head = encoder.head("response.output_text.delta", **self._at, logprobs=[])

    def more(self, text: str) -> None:
        if not text:
            return
        self._texts.append(text)
        self._encoder.delta(self._head, text)

    def close(self, status: str = "completed") -> WireItem:
        text = "".join(self._texts)
        part = self._part(text)
        item = {**self._item, "status": status, "content": [part]}
        if self._encoder.is_silent:
            return item
        emit = self._encoder.emit
        if self.is_refusal:
            emit("response.refusal.done", **self._at, refusal=text)
        else:
            emit("response.output_text.done", **self._at, text=text, logprobs=[])
        emit("response.content_part.done", **self._at, part=part)
        emit("response.output_item.done", output_index=self.place, item=item)
        return item

    def _part(self, text: str) -> WireItem:
        return {"type": "refusal", "refusal": text} if self.is_refusal else _output_text(text)


class OpenReasoning:
    """Thoughts. They are shown as a summary to a client that asked for one."""

    def __init__(self, encoder: Encoder, index: int, item_id: str, *, dialect: Dialect, is_summary: bool) -> None:
        self._encoder = encoder
        self.place = index
        self._item: WireItem = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": []}
        self._is_summary = is_summary
        where = "summary_index" if is_summary else "content_index"
        self._at = {"item_id": item_id, "output_index": index, where: 0}
        self._name = "response.reasoning_summary_text" if is_summary else REASONING_NAMES[dialect]
        self._part = "response.reasoning_summary_part" if is_summary else "response.content_part"
        self._texts: list[str] = []
        self._head = encoder.head(f"{self._name}.delta", **self._at)
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    def more(self, text: str) -> None:
        if not text:
            return
        if not self._texts:
            self._encoder.emit(f"{self._part}.added", **self._at, part=self._shown(""))
        self._texts.append(text)
        self._encoder.delta(self._head, text)

    def close(self, status: str = "completed", encrypted: str | None = None) -> WireItem:
        item = {**self._item, "status": status}
        if self._texts:
            text = "".join(self._texts)
            part = self._shown(text)
            item["summary" if self._is_summary else "content"] = [part]
            self._encoder.emit(f"{self._name}.done", **self._at, text=text)
            self._encoder.emit(f"{self._part}.done", **self._at, part=part)
        if encrypted is not None:
            item["encrypted_content"] = encrypted
        self._encoder.emit("response.output_item.done", output_index=self.place, item=item)
        return item

    def _shown(self, text: str) -> WireItem:
        return {"type": "summary_text" if self._is_summary else "reasoning_text", "text": text}


class OpenCall:
    """A call of a function."""

    def __init__(
        self, encoder: Encoder, index: int, item_id: str, call_id: str, name: str, namespace: str | None = None
    ) -> None:
        self._encoder = encoder
        self.place = index
        self._at = {"item_id": item_id, "output_index": index}
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
        self._head = encoder.head("response.function_call_arguments.delta", **self._at)
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are JSON by now, and so at their end."""
        return _is_json("".join(self._texts))

    def more(self, arguments: str) -> None:
        if not arguments:
            return
        self._texts.append(arguments)
        self._encoder.delta(self._head, arguments)

    def close(self, status: str = "completed") -> WireItem:
        arguments = "".join(self._texts)
        item = {**self._item, "status": status, "arguments": arguments}
        name = self._item["name"]
        emit = self._encoder.emit
        emit("response.function_call_arguments.done", **self._at, name=name, arguments=arguments)
        emit("response.output_item.done", output_index=self.place, item=item)
        return item


class OpenCustomCall:
    """A call of a tool that takes text. The model writes it as arguments, so it is read once they are whole."""

    def __init__(self, encoder: Encoder, index: int, item_id: str, call_id: str, guise: Guise) -> None:
        self._encoder = encoder
        self.place = index
        self._at = {"item_id": custom_id_of(item_id), "output_index": index}
        self._item: WireItem = {
            "id": custom_id_of(item_id),
            "type": "custom_tool_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": guise.name,
            "input": "",
        }
        if guise.namespace is not None:
            self._item["namespace"] = guise.namespace
        self._texts: list[str] = []
        encoder.emit("response.output_item.added", output_index=index, item=self._item)

    @property
    def is_whole(self) -> bool:
        return _is_json("".join(self._texts))

    def more(self, arguments: str) -> None:
        self._texts.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        text = text_of("".join(self._texts))
        item = {**self._item, "status": status, "input": text}
        if text:
            self._encoder.delta(self._encoder.head("response.custom_tool_call_input.delta", **self._at), text)
        self._encoder.emit("response.custom_tool_call_input.done", **self._at, input=text)
        self._encoder.emit("response.output_item.done", output_index=self.place, item=item)
        return item


class OpenSearch:
    """A search for tools. What it looks for is an object, which has no parts."""

    def __init__(self, encoder: Encoder, index: int, item_id: str, call_id: str) -> None:
        self._encoder = encoder
        self.place = index
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
    def is_whole(self) -> bool:
        return _is_json("".join(self._texts))

    def more(self, arguments: str) -> None:
        self._texts.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        text = "".join(self._texts)
        item = {**self._item, "status": status, "arguments": parse_json(text) if _is_json(text) else {"query": text}}
        self._encoder.emit("response.output_item.done", output_index=self.place, item=item)
        return item


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _output_text(text: str) -> WireItem:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
