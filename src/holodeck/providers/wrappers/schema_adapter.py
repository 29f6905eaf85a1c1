"""A model is offered only schemas that it accepts, and its arguments come back as each tool's own schema has them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MIB
from holodeck.models.items import FunctionCall, Item
from holodeck.models.model_io import ModelAnswer, ModelRequest, ToolSpec
from holodeck.providers.base import Batches, BatchingModel, ModelProvider, stream_in_batches
from holodeck.providers.tool_schemas import AdaptedTool, SchemaRulesName, adapt_tool

# Of them together: clients bring schemas, too, and new ones with every request.
MAX_ADAPTED_BYTES = 32 * MIB
# Schemas adapted for a model: as many as the tools that one server may list.
MAX_ADAPTED_SCHEMAS = 20_000


class SchemaAdapter(BatchingModel):
    """Wraps a model. Each schema is adapted once, and kept for the next turn."""

    def __init__(self, model: ModelProvider, rules_name: SchemaRulesName) -> None:
        self._model = model
        self._rules_name = rules_name
        self._cache: dict[tuple[str, int], tuple[ToolSpec, AdaptedTool]] = {}
        self._cached_bytes = 0
        """The bytes of all schemas that are kept."""

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def is_open(self) -> bool:
        """Whether the model is left alone for a while, because it kept failing."""
        return bool(getattr(self._model, "is_open", False))

    def stream_batches(self, request: ModelRequest) -> Batches:
        return self._stream_adapted(request) if request.tools else stream_in_batches(self._model, request)

    async def _stream_adapted(self, request: ModelRequest) -> Batches:
        adapted = {spec.name: self._adapt_spec(spec) for spec in request.tools}
        asked = replace(request, tools=tuple(each.spec for each in adapted.values()))
        async with aclosing(stream_in_batches(self._model, asked)) as batches:
            async for batch in batches:
                last = batch[-1]
                if isinstance(last, ModelAnswer):
                    batch[-1] = replace(last, items=tuple(_restore_arguments(item, adapted) for item in last.items))
                yield batch

    async def close(self) -> None:
        await self._model.close()

    def _adapt_spec(self, spec: ToolSpec) -> AdaptedTool:
        key = (spec.name, id(spec.parameters))
        known = self._cache.get(key)
        if known is None or known[0].description != spec.description:
            known = (spec, adapt_tool(spec, self._rules_name))  # the spec is kept, so that its id stays its own
            self._store(key, known)
        return known[1]

    def _store(self, key: tuple[str, int], entry: tuple[ToolSpec, AdaptedTool]) -> None:
        try:
            size = len(entry[0].description) + len(orjson.dumps(entry[0].parameters))
        except (TypeError, ValueError):
            return
        if size > MAX_ADAPTED_BYTES:
            return
        if len(self._cache) >= MAX_ADAPTED_SCHEMAS or self._cached_bytes + size > MAX_ADAPTED_BYTES:
            self._cache.clear()
            self._cached_bytes = 0
        self._cache[key] = entry
        self._cached_bytes += size


def _restore_arguments(item: Item, adapted: Mapping[str, AdaptedTool]) -> Item:
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
