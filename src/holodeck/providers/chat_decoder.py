"""Decoder of answers in the Chat Completions API, in the variants of many servers.

It accepts reasoning in several fields, whole answers instead of streams, calls without ids, and signatures attached to
calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from holodeck.models.items import Item, Reasoning, Usage, text_message
from holodeck.models.model_io import (
    FinishReason,
    Logprob,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from holodeck.providers.answer_decoder import AnswerDecoder, build_openai_usage, parse_logprobs
from holodeck.providers.http.endpoint import DONE
from holodeck.providers.http.errors import stream_error
from holodeck.providers.http.model_address import ModelAddress
from holodeck.providers.tool_call_assembler import arguments_text

REASONING_KEY = "chat"
"""Key in `Reasoning.opaque` of the name of the field in which a server sent its reasoning."""
SIGNED_KEY = "chat_calls"
"""Key in `Reasoning.opaque` of what a server attached to calls, by call id, and requires back."""
# The two names in use for the field with the reasoning.
_THOUGHTS = ("reasoning_content", "reasoning")
# Gemini's endpoint refuses calls that come back without it.
_SIGNATURE = "extra_content"


class ChatDecoder(AnswerDecoder):
    """Assembles one answer. It is complete with its finish reason; the usage may still follow, until `[DONE]`."""

    finishes: ClassVar[Mapping[str, FinishReason]] = {
        "length": "length",
        "max_tokens": "length",
        "model_length": "length",
        "content_filter": "content_filter",
        "safety": "content_filter",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
    }

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        super().__init__(request, address)
        # Log probabilities that belong to the next text.
        self._logprobs: tuple[Logprob, ...] = ()
        self._service_tier: str | None = None
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thoughts_field = ""
        self._signed: dict[str, dict[str, Any]] = {}
        self._finish: str | None = None
        self._has_choice = False
        self._usage = Usage()
        self._model = ""

    def decode_into(self, batch: list[ModelEvent], events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            text = self._find_only_text(event) if self._has_choice else None
            if text:
                self._text.append(text)
                batch.append(TextDelta(text=text))
            else:
                batch += self.decode(event)

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        self._events = []
        if event is DONE:
            self._end_stream()
            return self._events
        error = event.get("error") or (event if event.get("object") == "error" else None)
        if error:
            raise stream_error(self._address, error)
        self._model = event.get("model") or self._model
        self._service_tier = event.get("service_tier") or self._service_tier
        usage = event.get("usage")
        if usage:
            self._usage = build_openai_usage(usage, read_name="prompt_tokens", written_name="completion_tokens")
        for choice in event.get("choices") or ():
            if not choice.get("index"):
                self._decode_choice(choice)
        return self._events

    def to_answered(self) -> ModelAnswer | None:
        if self._finish is None and not (self.is_finished and self._has_choice):
            return None
        items: list[Item] = []
        opaque: dict[str, Any] = {REASONING_KEY: self._thoughts_field} if self._thoughts else {}
        if self._signed:
            opaque[SIGNED_KEY] = self._signed
        if opaque:
            items.append(Reasoning(text="".join(self._thoughts), opaque=opaque))
        if self._text:
            items.append(text_message("assistant", "".join(self._text)))
        return ModelAnswer(
            items=(*items, *(self._calls.items() if self._calls.calls else ())),
            finish=self._find_finish(self._finish),
            usage=self._usage,
            model=self._model,
            service_tier=self._service_tier,
        )

    def _find_only_text(self, event: dict[str, Any]) -> str | None:
        """Return the text of a chunk that has nothing else, like nearly all chunks: a fast path."""
        choices = event.get("choices")
        if not choices or len(choices) > 1 or event.get("model") != self._model:
            return None
        if self._wants_logprobs:
            return None
        choice = choices[0]
        delta = choice.get("delta")
        is_text_only = (
            delta
            and len(delta) == 1
            and not choice.get("index")
            and not choice.get("finish_reason")
            and not event.get("usage")
            and not event.get("error")
        )
        text = delta.get("content") if is_text_only else None
        return text if isinstance(text, str) else None

    def _decode_choice(self, choice: dict[str, Any]) -> None:
        self._has_choice = True
        delta = choice.get("delta")
        # A whole answer has a message.
        message = choice.get("message") if delta is None else None
        if self._wants_logprobs and choice.get("logprobs"):
            found = choice["logprobs"]
            self._logprobs += parse_logprobs(found.get("content")) + parse_logprobs(found.get("refusal"))
        if delta or message:
            self._decode_delta(delta or message or {}, is_whole=bool(message))
        finish = choice.get("finish_reason")
        if finish == "error":
            raise stream_error(self._address, choice.get("error"))
        if finish:
            self._finish = finish
        if message:
            self._end_stream()

    def _decode_delta(self, delta: dict[str, Any], *, is_whole: bool) -> None:
        for field in _THOUGHTS:
            thought = delta.get(field)
            if thought and isinstance(thought, str):
                self._thoughts_field = field
                self._append_reasoning(thought)
                break
        content = delta.get("content")
        if content:
            self._decode_content(content)
        if delta.get("refusal"):
            self._append_text(delta["refusal"], is_refusal=True)
        for number, call in enumerate(delta.get("tool_calls") or ()):
            self._decode_call({"index": number, **call} if is_whole else call)
        if delta.get("function_call"):
            self._decode_call({"index": 0, "function": delta["function_call"]})

    def _decode_content(self, content: Any) -> None:
        if isinstance(content, str):
            self._append_text(content)
            return
        # Some servers send a list of parts, reasoning included.
        for part in content:
            if part.get("type") == "thinking":
                self._thoughts_field = self._thoughts_field or _THOUGHTS[0]
                self._append_reasoning("".join(inner.get("text", "") for inner in part.get("thinking") or ()))
            elif part.get("text"):
                self._append_text(part["text"])

    def _append_text(self, text: str, *, is_refusal: bool = False) -> None:
        self._text.append(text)
        logprobs, self._logprobs = self._logprobs, ()
        self._events.append(TextDelta(text=text, is_refusal=is_refusal, logprobs=logprobs))

    def _append_reasoning(self, text: str) -> None:
        self._thoughts.append(text)
        self._events.append(ReasoningDelta(text=text))

    def _decode_call(self, call: dict[str, Any]) -> None:
        function = call.get("function") or {}
        call_id, name = call.get("id") or "", function.get("name") or ""
        index = call.get("index")
        if index not in self._calls or self._calls.is_new_call(index, call_id=call_id, name=name):
            self._calls.start(index, call_id=call_id, name=name)
        self._events += self._calls.append(index, name=name, arguments=arguments_text(function.get("arguments")))
        if call.get(_SIGNATURE):
            self._signed[self._calls.item(index).call_id] = {_SIGNATURE: call[_SIGNATURE]}

    def _end_stream(self) -> None:
        self.is_finished = True
        if self._calls.calls:
            self._events += self._calls.announce_remaining()
