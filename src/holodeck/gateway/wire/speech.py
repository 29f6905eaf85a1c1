"""What the model says and thinks, as it comes. What was streamed stands, however the provider divides it afterwards."""

from __future__ import annotations

import orjson

from holodeck.gateway.wire.dialects import Dialect
from holodeck.gateway.wire.open_items import OpenMessage, OpenReasoning
from holodeck.gateway.wire.options import ENCRYPTED_REASONING
from holodeck.gateway.wire.output import Output
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.seal import REASONING_PURPOSE, Seal
from holodeck.lib.ids import new_id
from holodeck.models.items import Message, Reasoning


class Speech:
    """At most one message and one train of thought are open; speaking ends thinking, and the other way round."""

    def __init__(self, output: Output, request: ResponseRequest, *, dialect: Dialect, seal: Seal | None) -> None:
        self._output = output
        self._dialect = dialect
        self._is_summary = request.answer.summary is not None
        self._seal = seal if ENCRYPTED_REASONING in request.include else None
        self._message: OpenMessage | None = None
        self._reasoning: OpenReasoning | None = None
        self._used: set[str] = set()
        # Of this turn, and not yet accounted for by a finished item.
        self._spoken: list[str] = []
        self._thought: list[str] = []

    def say(self, item_id: str, text: str, *, is_refusal: bool = False) -> None:
        self._end_reasoning()
        if self._message is None or self._message.is_refusal is not is_refusal:
            self._end_message()
            self._message = self._begin_message(item_id, is_refusal=is_refusal)
        self._message.more(text)
        self._spoken.append(text)

    def think(self, item_id: str, text: str) -> None:
        self._end_message()
        if self._reasoning is None:
            self._reasoning = self._begin_reasoning(item_id)
        self._reasoning.more(text)
        self._thought.append(text)

    def begin_turn(self) -> None:
        """What the last turn left open is over."""
        self.pause()
        self._spoken, self._thought = [], []

    def pause(self) -> None:
        """Something else begins."""
        self._end_message()
        self._end_reasoning()

    def finish_message(self, item: Message, status: str = "completed") -> None:
        self._end_message(status)
        if any(self._spoken):
            self._spoken = _unaccounted(self._spoken, item.text)
            return
        message = self._begin_message(item.id)
        message.more(item.text)
        self._output.put(message.place, message.close(status))

    def finish_reasoning(self, item: Reasoning, status: str = "completed") -> None:
        text = item.text or item.summary
        encrypted = self._encrypted(item)
        is_told = any(self._thought)
        if is_told:
            self._thought = _unaccounted(self._thought, text)
            if self._reasoning is None and encrypted is None:
                return
        reasoning = self._reasoning or self._begin_reasoning(item.id)
        if not is_told and text:
            reasoning.more(text)
        self._output.put(reasoning.place, reasoning.close(status, encrypted=encrypted))
        self._reasoning = None

    def abandon(self) -> None:
        """The run has ended in the middle of it."""
        for item in (self._message, self._reasoning):
            if item is not None:
                self._output.put(item.place, item.close("incomplete"))
        self._message = self._reasoning = None

    def _end_message(self, status: str = "completed") -> None:
        if self._message is not None:
            self._output.put(self._message.place, self._message.close(status))
            self._message = None

    def _end_reasoning(self) -> None:
        """Unless it must wait for what the provider seals at the end."""
        if self._reasoning is not None and self._seal is None:
            self._output.put(self._reasoning.place, self._reasoning.close())
            self._reasoning = None

    def _begin_message(self, item_id: str, *, is_refusal: bool = False) -> OpenMessage:
        place = self._output.reserve()
        return OpenMessage(self._output.encoder, place, self._unused(item_id, "msg"), is_refusal=is_refusal)

    def _begin_reasoning(self, item_id: str) -> OpenReasoning:
        return OpenReasoning(
            self._output.encoder,
            self._output.reserve(),
            self._unused(item_id, "rs"),
            dialect=self._dialect,
            is_summary=self._is_summary,
        )

    def _unused(self, item_id: str, prefix: str) -> str:
        """The engine's id; a fresh one for an item that goes on after something else."""
        unused = new_id(prefix) if item_id in self._used or not item_id else item_id
        self._used.add(unused)
        return unused

    def _encrypted(self, item: Reasoning) -> str | None:
        if not item.opaque or self._seal is None:
            return None
        return self._seal.close(REASONING_PURPOSE, orjson.dumps(dict(item.opaque)))


def _unaccounted(pieces: list[str], finished: str) -> list[str]:
    """What was streamed beyond a finished text. Pieces are joined once: adding each to a text is quadratic."""
    streamed = "".join(pieces)
    return [streamed[len(finished) :]] if streamed.startswith(finished) else []
