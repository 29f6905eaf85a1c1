"""Messages and reasoning in the output of a response, streamed as the model writes them.

The deltas decide what the items are. A finished item of the provider that divides the same text differently changes
nothing that was streamed; only text that was not streamed at all is written when its item finishes.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from holodeck.gateway.api.models.create_response import ENCRYPTED_REASONING
from holodeck.gateway.sealing import REASONING_PURPOSE, Seal
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.item_ids import derive_id
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.response.output_items import (
    EventEncoder,
    ItemEvents,
    OutputItems,
    PartEvents,
    PartKind,
    WireItem,
)
from holodeck.lib.ids import new_id
from holodeck.models.generation import DEFAULT_OPTIONS
from holodeck.models.items import Message, Reasoning
from holodeck.models.model_io import Logprob, logprobs_to_json


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


class TextItems:
    """Writes the messages and reasoning of a run. At most one of each is open, and a delta of one closes the other.

    With a `seal`, reasoning stays open until its item finishes: only then the provider's encrypted part is known.
    """

    def __init__(
        self, output: OutputItems, request: ResponseRequest, *, client_kind: ClientKind, seal: Seal | None
    ) -> None:
        self._output = output
        self._client_kind = client_kind
        self._is_summary = request.options.summary is not None
        self._has_logprobs = request.options is not DEFAULT_OPTIONS and request.options.wants_logprobs
        self._seal = seal if ENCRYPTED_REASONING in request.include else None
        self._message: OpenMessage | None = None
        self._reasoning: OpenReasoning | None = None
        self._used_ids: set[str] = set()
        # Deltas of this turn that no finished item has covered yet.
        self._unmatched_texts: list[str] = []
        self._unmatched_reasoning: list[str] = []

    def append_text(
        self, item_id: str, text: str, *, is_refusal: bool = False, logprobs: Sequence[Logprob] = ()
    ) -> None:
        if self._reasoning is not None:
            self._close_reasoning()
        if self._message is None or self._message.is_refusal is not is_refusal:
            self._close_message()
            self._message = self._open_message(item_id, is_refusal=is_refusal)
        if logprobs and self._has_logprobs and not is_refusal:
            self._message.append_tokens(text, logprobs_to_json(logprobs, has_all_bytes=True))
        else:
            self._message.append(text)
        self._unmatched_texts.append(text)

    def append_texts(self, item_id: str, texts: Sequence[str]) -> None:
        """Append plain texts, without log probabilities, of one message."""
        if self._has_logprobs:
            for text in texts:
                self.append_text(item_id, text)
            return
        self.append_text(item_id, texts[0])
        assert self._message is not None  # noqa: S101 - open for the first one
        self._message.append_all(texts[1:])
        self._unmatched_texts += texts[1:]

    def append_reasoning(self, item_id: str, text: str) -> None:
        self._close_message()
        if self._reasoning is None:
            self._reasoning = self._open_reasoning(item_id)
        self._reasoning.append(text)
        self._unmatched_reasoning.append(text)

    def start_turn(self) -> None:
        """Close the items of the last turn and forget its deltas."""
        self.close_items()
        self._unmatched_texts, self._unmatched_reasoning = [], []

    def close_items(self) -> None:
        """Close the open items, before an item of another kind."""
        if self._message is not None:
            self._close_message()
        if self._reasoning is not None:
            self._close_reasoning()

    def finish_message(self, item: Message, status: str = "completed") -> None:
        if self._message is not None:
            self._close_message(status)
        if any(self._unmatched_texts):
            self._unmatched_texts = streamed_beyond(self._unmatched_texts, item.text)
            return
        if self._output.encoder.is_silent:
            item_id = self._assign_id(item.id, "msg")
            self._output.put(
                self._output.reserve(item_id), build_message(item_id, [build_text_part(item.text, [])], status)
            )
            return
        message = self._open_message(item.id)
        message.append(item.text)
        self._output.put(message.output_index, message.close(status))

    def finish_reasoning(self, item: Reasoning, status: str = "completed") -> None:
        text = item.text or item.summary
        encrypted = self._seal_reasoning(item)
        is_streamed = any(self._unmatched_reasoning)
        if is_streamed:
            self._unmatched_reasoning = streamed_beyond(self._unmatched_reasoning, text)
            if self._reasoning is None and encrypted is None:
                return
        reasoning = self._reasoning or self._open_reasoning(item.id)
        if not is_streamed and text:
            reasoning.append(text)
        self._output.put(reasoning.output_index, reasoning.close(status, encrypted=encrypted))
        self._reasoning = None

    def close_incomplete(self) -> None:
        """Close the open items as incomplete: the run has ended."""
        for item in (self._message, self._reasoning):
            if item is not None:
                self._output.put(item.output_index, item.close("incomplete"))
        self._message = self._reasoning = None

    def _close_message(self, status: str = "completed") -> None:
        if self._message is not None:
            self._output.put(self._message.output_index, self._message.close(status))
            self._message = None

    def _close_reasoning(self) -> None:
        if self._reasoning is not None and self._seal is None:
            self._output.put(self._reasoning.output_index, self._reasoning.close())
            self._reasoning = None

    def _open_message(self, item_id: str, *, is_refusal: bool = False) -> OpenMessage:
        item_id = self._assign_id(item_id, "msg")
        return OpenMessage(
            self._output.encoder,
            self._output.reserve(item_id),
            item_id,
            is_refusal=is_refusal,
            has_logprobs=self._has_logprobs,
        )

    def _open_reasoning(self, item_id: str) -> OpenReasoning:
        item_id = self._assign_id(item_id, "rs")
        return OpenReasoning(
            self._output.encoder,
            self._output.reserve(item_id),
            item_id,
            client_kind=self._client_kind,
            is_summary=self._is_summary,
        )

    def _assign_id(self, item_id: str, prefix: str) -> str:
        # An item of the engine that continues after another one becomes a second item here, with an id of its own.
        item_id = item_id or new_id(prefix)
        while item_id in self._used_ids:
            item_id = derive_id(prefix, item_id)
        self._used_ids.add(item_id)
        return item_id

    def _seal_reasoning(self, item: Reasoning) -> str | None:
        if not item.opaque or self._seal is None:
            return None
        return self._seal.seal(REASONING_PURPOSE, orjson.dumps(dict(item.opaque)))


def streamed_beyond(deltas: list[str], finished: str) -> list[str]:
    """Return the deltas after those of a text that is finished: none, if they are of another text."""
    # Joined once: adding each delta to a text would be quadratic.
    streamed = "".join(deltas)
    return [streamed[len(finished) :]] if streamed.startswith(finished) else []
