"""A model whose answers fit the JSON Schema that was asked for, or that fails with the reason.

`FormatEnforcer` wraps a model. A turn without `response_format` passes through untouched, and so does every answer that
is no final text: one with tool calls, one that was cut short, a refusal. Any other is checked against the schema. One
that does not fit is told to the model with the reasons, `MAX_CORRECTIONS` times at most, within the same turn: the
conversation, the stream and the checkpoint of a durable run have the last answer only, with the usage of all. Where
the provider itself guarantees the format, its answer is streamed as it comes; anywhere else it is heard to its end
first, because what was streamed cannot be taken back. Raises `ModelError` when no answer fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib import log
from holodeck.lib.errors import BAD_QUESTION, ModelError
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.limits import MAX_CHECKED_BYTES
from holodeck.models.items import FunctionCall, Message, Usage, text_message
from holodeck.models.llm import LLM
from holodeck.models.model_io import CUT_SHORT, ModelAnswer, ModelEvent, ModelRequest, TextDelta
from holodeck.providers.base import Batches, BatchingModel, ModelProvider, stream_in_batches
from holodeck.providers.encoding import is_strict
from holodeck.providers.registry import PROVIDERS

# Corrections of one answer: a model that did not understand two explanations does not understand a third.
MAX_CORRECTIONS = 2
_CORRECTION = (
    "Your answer does not fit the JSON Schema that it must fit: {reason}. "
    "Answer again with JSON that fits it, and nothing else."
)

Guarantee = Callable[[Mapping[str, Any]], bool]
"""Whether a provider itself makes sure that an answer fits this schema."""


class FormatEnforcer(BatchingModel):
    """Wraps a model, and owns the checker of its answers."""

    def __init__(self, model: ModelProvider, *, is_guaranteed: Guarantee = lambda _: False) -> None:
        self._model = model
        self._is_guaranteed = is_guaranteed
        self._checker = SchemaChecker()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def is_open(self) -> bool:
        """Whether the model is left alone for a while, because it kept failing."""
        return bool(getattr(self._model, "is_open", False))

    def stream_batches(self, request: ModelRequest) -> Batches:
        schema = request.response_format
        if schema is None:
            return stream_in_batches(self._model, request)
        is_streamed = self._is_guaranteed(schema)
        return self._stream_checked(request, schema) if is_streamed else self._ask_until_valid(request, schema)

    async def close(self) -> None:
        await self._checker.close()
        await self._model.close()

    async def _stream_checked(self, request: ModelRequest, schema: Mapping[str, Any]) -> Batches:
        await self._require_usable(schema)
        is_refusal = False
        async with aclosing(stream_in_batches(self._model, request)) as batches:
            async for batch in batches:
                is_refusal = is_refusal or _has_refusal(batch)
                last = batch[-1]
                if isinstance(last, ModelAnswer) and not is_refusal:
                    reason = await self._find_misfit(schema, last)
                    if reason is not None:
                        raise self._error(reason, 1)
                yield batch

    async def _ask_until_valid(self, request: ModelRequest, schema: Mapping[str, Any]) -> Batches:
        await self._require_usable(schema)
        usage, asked = Usage(), request
        for attempt in range(1, MAX_CORRECTIONS + 2):
            heard: list[list[ModelEvent]] = []
            size = 0
            async with aclosing(stream_in_batches(self._model, asked)) as batches:
                async for batch in batches:
                    heard.append(batch)
                    size += sum(len(event.text) for event in batch if isinstance(event, TextDelta))
                    # More is not checked, and must not be held: the rest goes to the caller, which has a limit.
                    if size > MAX_CHECKED_BYTES:
                        log.warning("model.answer_unchecked", model=self.name, reason=f"more than {size} characters")
                        for held in heard:
                            yield held
                        async for rest in batches:
                            yield rest
                        return
            answered = heard[-1][-1] if heard else None
            if not isinstance(answered, ModelAnswer):  # the caller says what that is
                break
            usage += answered.usage
            is_refusal = any(_has_refusal(batch) for batch in heard)
            reason = None if is_refusal else await self._find_misfit(schema, answered)
            if reason is None:
                heard[-1][-1] = replace(answered, usage=usage)
                break
            # Not the reason itself: it quotes the answer, and no log line has any content.
            log.warning("model.answer_does_not_fit", model=self.name, attempt=attempt)
            correction = text_message("user", _CORRECTION.format(reason=reason))
            asked = replace(request, items=(*request.items, *answered.items, correction))
        else:
            raise self._error(reason or "", MAX_CORRECTIONS + 1)
        for batch in heard:
            yield batch

    async def _require_usable(self, schema: Mapping[str, Any]) -> None:
        """Raise `ModelError` for a schema against which nothing can be checked, before the model is asked."""
        try:
            await self._checker.find_violations(schema, None)
        except SchemaError as error:
            raise ModelError(f"'response_format' cannot be used: {error}.", code=BAD_QUESTION) from None
        except UncheckedError:  # the answer's own check says so
            return

    async def _find_misfit(self, schema: Mapping[str, Any], answered: ModelAnswer) -> str | None:
        """Why a final text does not fit; None for one that does, and for what is no final text."""
        if answered.finish in CUT_SHORT or any(isinstance(item, FunctionCall) for item in answered.items):
            return None
        texts = [item.text for item in answered.items if isinstance(item, Message)]
        try:
            value = orjson.loads(texts[-1] if texts else "")
        except ValueError as error:
            return f"it is not valid JSON ({error})"
        try:
            violations = await self._checker.find_violations(schema, value)
        except UncheckedError as error:
            log.warning("model.answer_unchecked", model=self.name, reason=error)
            return None
        return "; ".join(f"{each.path or 'the whole'}: {each.message}" for each in violations) or None

    def _error(self, reason: str, answers: int) -> ModelError:
        times = "" if answers == 1 else f" in {answers} tries"
        return ModelError(f"Model '{self.name}' gave no answer that fits 'response_format'{times}: {reason}.")


def format_guarantee_of(llm: LLM) -> Guarantee:
    """Return for which schemas the provider of a model guarantees the format, by its row in the registry."""
    guarantee = PROVIDERS[llm.provider].guarantees_format
    if guarantee == "always":
        return lambda _: True
    return is_strict if guarantee == "strict" and llm.is_at_provider else lambda _: False


def _has_refusal(batch: list[ModelEvent]) -> bool:
    return any(isinstance(event, TextDelta) and event.is_refusal for event in batch)
