"""A model is offered only schemas that it accepts, and its arguments come back as each tool's own schema has them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib.bounded_json import parse_json
from holodeck.lib.limits import MAX_ADAPTED_BYTES, MAX_ADAPTED_KEPT
from holodeck.models.exchange import Answered, ModelRequest, ToolSpec
from holodeck.models.items import FunctionCall, Item
from holodeck.providers.batches import Batches, Batching, batches_of
from holodeck.providers.provider import ModelProvider
from holodeck.providers.schemas import Adapted, Dialect, adapt


class Adapting(Batching):
    """Wraps a model. Each schema is adapted once, and kept for the next turn."""

    def __init__(self, model: ModelProvider, dialect: Dialect) -> None:
        self._model = model
        self._dialect = dialect
        self._kept: dict[tuple[str, int], tuple[ToolSpec, Adapted]] = {}
        self._size = 0
        """The bytes of all schemas that are kept."""

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def is_open(self) -> bool:
        """Whether the model is left alone for a while, because it kept failing."""
        return bool(getattr(self._model, "is_open", False))

    def batches(self, request: ModelRequest) -> Batches:
        return self._adapting(request) if request.tools else batches_of(self._model, request)

    async def _adapting(self, request: ModelRequest) -> Batches:
        adapted = {spec.name: self._adapted(spec) for spec in request.tools}
        asked = replace(request, tools=tuple(each.spec for each in adapted.values()))
        async with aclosing(batches_of(self._model, asked)) as batches:
            async for batch in batches:
                last = batch[-1]
                if isinstance(last, Answered):
                    batch[-1] = replace(last, items=tuple(_restored(item, adapted) for item in last.items))
                yield batch

    async def close(self) -> None:
        await self._model.close()

    def _adapted(self, spec: ToolSpec) -> Adapted:
        key = (spec.name, id(spec.parameters))
        known = self._kept.get(key)
        if known is None or known[0].description != spec.description:
            known = (spec, adapt(spec, self._dialect))  # the spec is kept, so that its id stays its own
            self._keep(key, known)
        return known[1]

    def _keep(self, key: tuple[str, int], made: tuple[ToolSpec, Adapted]) -> None:
        try:
            size = len(made[0].description) + len(orjson.dumps(made[0].parameters))
        except (TypeError, ValueError):
            return
        if size > MAX_ADAPTED_BYTES:
            return
        if len(self._kept) >= MAX_ADAPTED_KEPT or self._size + size > MAX_ADAPTED_BYTES:
            self._kept.clear()
            self._size = 0
        self._kept[key] = made
        self._size += size


def _restored(item: Item, adapted: Mapping[str, Adapted]) -> Item:
    """A call with the arguments of the tool's own schema. What is not JSON stays as the model wrote it."""
    if not isinstance(item, FunctionCall) or item.name not in adapted or not adapted[item.name].changes:
        return item
    try:
        arguments: Any = parse_json(item.arguments)
    except ValueError:
        return item
    if not isinstance(arguments, dict):
        return item
    return replace(item, arguments=orjson.dumps(adapted[item.name].restore(arguments)).decode())
