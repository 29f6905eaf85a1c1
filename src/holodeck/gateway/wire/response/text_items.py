"""What the model says and thinks, as it comes. What was streamed stands, however the provider divides it afterwards."""

from __future__ import annotations

import orjson

from holodeck.gateway.sealing import REASONING_PURPOSE, Seal
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.options import ENCRYPTED_REASONING
from holodeck.gateway.wire.response.event_encoder import OutputItems
from holodeck.gateway.wire.response.open_items import OpenMessage, OpenReasoning
from holodeck.lib.ids import new_id
from holodeck.models.items import Message, Reasoning


class TextItems:
    """At most one message and one train of thought are open; speaking ends thinking, and the other way round."""

    def __init__(
        self, output: OutputItems, request: ResponseRequest, *, client_kind: ClientKind, seal: Seal | None
    ) -> None:
        self._output = output
        self._client_kind = client_kind
        self._is_summary = request.options.summary is not None
        self._seal = seal if ENCRYPTED_REASONING in request.include else None
        self._message: OpenMessage | None = None
        self._reasoning: OpenReasoning | None = None
        self._used_ids: set[str] = set()
        # Of this turn, and not yet accounted for by a finished item.
        self._unmatched_texts: list[str] = []
        self._unmatched_thoughts: list[str] = []

    def append_text(self, item_id: str, text: str, *, is_refusal: bool = False) -> None:
        self._close_reasoning()
        if self._message is None or self._message.is_refusal is not is_refusal:
            self._close_message()
            self._message = self._open_message(item_id, is_refusal=is_refusal)
        self._message.append(text)
        self._unmatched_texts.append(text)

    def append_reasoning(self, item_id: str, text: str) -> None:
        self._close_message()
        if self._reasoning is None:
            self._reasoning = self._open_reasoning(item_id)
        self._reasoning.append(text)
        self._unmatched_thoughts.append(text)

    def start_turn(self) -> None:
        """What the last turn left open is over."""
        self.close_items()
        self._unmatched_texts, self._unmatched_thoughts = [], []

    def close_items(self) -> None:
        """Something else begins."""
        self._close_message()
        self._close_reasoning()

    def finish_message(self, item: Message, status: str = "completed") -> None:
        self._close_message(status)
        if any(self._unmatched_texts):
            self._unmatched_texts = _streamed_beyond(self._unmatched_texts, item.text)
            return
        message = self._open_message(item.id)
        message.append(item.text)
        self._output.put(message.output_index, message.close(status))

    def finish_reasoning(self, item: Reasoning, status: str = "completed") -> None:
        text = item.text or item.summary
        encrypted = self._seal_reasoning(item)
        is_told = any(self._unmatched_thoughts)
        if is_told:
            self._unmatched_thoughts = _streamed_beyond(self._unmatched_thoughts, text)
            if self._reasoning is None and encrypted is None:
                return
        reasoning = self._reasoning or self._open_reasoning(item.id)
        if not is_told and text:
            reasoning.append(text)
        self._output.put(reasoning.output_index, reasoning.close(status, encrypted=encrypted))
        self._reasoning = None

    def close_incomplete(self) -> None:
        """The run has ended in the middle of it."""
        for item in (self._message, self._reasoning):
            if item is not None:
                self._output.put(item.output_index, item.close("incomplete"))
        self._message = self._reasoning = None

    def _close_message(self, status: str = "completed") -> None:
        if self._message is not None:
            self._output.put(self._message.output_index, self._message.close(status))
            self._message = None

    def _close_reasoning(self) -> None:
        """Unless it must wait for what the provider seals at the end."""
        if self._reasoning is not None and self._seal is None:
            self._output.put(self._reasoning.output_index, self._reasoning.close())
            self._reasoning = None

    def _open_message(self, item_id: str, *, is_refusal: bool = False) -> OpenMessage:
        place = self._output.reserve()
        return OpenMessage(self._output.encoder, place, self._assign_id(item_id, "msg"), is_refusal=is_refusal)

    def _open_reasoning(self, item_id: str) -> OpenReasoning:
        return OpenReasoning(
            self._output.encoder,
            self._output.reserve(),
            self._assign_id(item_id, "rs"),
            client_kind=self._client_kind,
            is_summary=self._is_summary,
        )

    def _assign_id(self, item_id: str, prefix: str) -> str:
        """The engine's id; a fresh one for an item that goes on after something else."""
        unused = new_id(prefix) if item_id in self._used_ids or not item_id else item_id
        self._used_ids.add(unused)
        return unused

    def _seal_reasoning(self, item: Reasoning) -> str | None:
        if not item.opaque or self._seal is None:
            return None
        return self._seal.seal(REASONING_PURPOSE, orjson.dumps(dict(item.opaque)))


def _streamed_beyond(deltas: list[str], finished: str) -> list[str]:
    """What was streamed beyond a finished text. Pieces are joined once: adding each to a text is quadratic."""
    streamed = "".join(deltas)
    return [streamed[len(finished) :]] if streamed.startswith(finished) else []
