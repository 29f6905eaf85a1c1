"""Adapts tool schemas to what the provider accepts, and restores the arguments of calls to each tool's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MIB
from holodeck.lib.record import copy_record
from holodeck.models.items import FunctionCall, Item
from holodeck.models.model_io import ModelAnswer, ModelRequest, ToolSpec
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper
from holodeck.providers.tool_schemas.adapt import AdaptedTool, adapt_tool
from holodeck.providers.tool_schemas.rules import SchemaRulesName

# Bytes of all cached schemas of a model: clients send schemas as well, and new ones with every request.
MAX_ADAPTED_BYTES = 32 * MIB
# Cached schemas of a model: as many as the tools that one server may list.
MAX_ADAPTED_SCHEMAS = 20_000


class SchemaAdapter(ModelWrapper):
    """Adapts each schema once and caches it for later turns. A full cache is cleared."""

    def __init__(self, model: ModelProvider, rules_name: SchemaRulesName) -> None:
        super().__init__(model)
        self._rules_name = rules_name
        # By tool name and identity of the schema. The entry refers to the spec, so that the id is not reused.
        self._cache: dict[tuple[str, int], tuple[ToolSpec, AdaptedTool]] = {}
        self._cached_bytes = 0
        self._latest = _AdaptedTools(tools=(), adapted=())

    def stream_batches(self, request: ModelRequest) -> Batches:
        if not request.tools:
            return self._stream_inner(request)
        # The tools of most requests are the same object: those of the operator's servers.
        if self._latest.tools is not request.tools:
            adapted = tuple(self._adapt_spec(spec) for spec in request.tools)
            self._latest = _AdaptedTools(tools=request.tools, adapted=adapted)
        adapted_request = request if self._latest.is_same else copy_record(request, tools=self._latest.specs)
        if not self._latest.changed:
            return self._stream_inner(adapted_request)
        return self._stream_restored(adapted_request, self._latest.changed)

    async def _stream_restored(self, request: ModelRequest, changed: Mapping[str, AdaptedTool]) -> Batches:
        async with aclosing(self._stream_inner(request)) as batches:
            async for batch in batches:
                last = batch[-1]
                if isinstance(last, ModelAnswer):
                    batch[-1] = replace(last, items=tuple(_restore_arguments(item, changed) for item in last.items))
                yield batch

    def _adapt_spec(self, spec: ToolSpec) -> AdaptedTool:
        key = (spec.name, id(spec.parameters))
        known = self._cache.get(key)
        # A schema that all requests share comes with the description and the marks of each.
        if known is None or _unshared_fields(known[0]) != _unshared_fields(spec):
            known = (spec, adapt_tool(spec, self._rules_name))
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


def _unshared_fields(spec: ToolSpec) -> tuple[Any, ...]:
    return (spec.description, spec.cache_mark, spec.native)


class _AdaptedTools:
    """The tools of one request with their adapted forms."""

    def __init__(self, *, tools: tuple[ToolSpec, ...], adapted: tuple[AdaptedTool, ...]) -> None:
        self.tools = tools
        self.specs = tuple(each.spec for each in adapted)
        self.is_same = self.specs == tools
        """Whether the provider accepts all of them as they are."""
        self.changed = {each.spec.name: each for each in adapted if each.changes}
        """By name, the tools whose schemas the provider does not accept as they are."""


def _restore_arguments(item: Item, changed: Mapping[str, AdaptedTool]) -> Item:
    """Return a call with arguments for the tool's own schema. Invalid JSON stays as the model wrote it."""
    if not isinstance(item, FunctionCall) or item.name not in changed:
        return item
    try:
        arguments: Any = parse_json(item.arguments)
    except ValueError:
        return item
    if not isinstance(arguments, dict):
        return item
    return replace(item, arguments=orjson.dumps(changed[item.name].restore(arguments)).decode())
