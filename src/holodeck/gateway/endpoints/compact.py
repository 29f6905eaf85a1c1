"""`/v1/responses/compact` and `/v1/responses/input_tokens`: a conversation as one sealed item, and its token count."""

from __future__ import annotations

import time
from collections.abc import Sequence

import orjson

from holodeck.gateway.continuation.approvals import insert_outputs
from holodeck.gateway.continuation.conversation_lock import check_context_size
from holodeck.gateway.continuation.pending_calls import pending_calls_of
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.sealing import SealKeys, plain_size
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.request.compact import build_compaction, read_compact_request
from holodeck.lib.off_loop import run_off_loop
from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Item, Message, Usage
from holodeck.models.items_json import encode_items
from holodeck.models.model_io import ModelRequest

# Characters of English text or JSON per token, roughly, in all of today's tokenizers.
CHARS_PER_TOKEN = 4
# Tokens of an item beside its content: its role and its delimiters.
TOKENS_PER_ITEM = 4
# Tokens of an image of 1024 x 1024 at high detail, as OpenAI counts it; the real size is not looked at.
TOKENS_PER_IMAGE = 765


class ContextEndpoints:
    """Routes about the context of a request. They do not ask the model."""

    def __init__(
        self, run_builder: RunBuilder, continuations: ContinuationResolver, seal_keys: SealKeys, *, max_bytes: int
    ) -> None:
        """`max_bytes`: plain bytes that a compacted conversation may have."""
        self._max_bytes = max_bytes
        self._run_builder = run_builder
        self._continuations = continuations
        self._seal_keys = seal_keys

    async def compact(self, request: Request) -> Reply:
        """Build one sealed item of the whole conversation. It is compressed, not summarized: nothing is lost."""
        body, caller = request.json(), request.caller
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, request.reservation.acquire)
        compaction = read_compact_request(body, sealed=sealed, find_item=find)
        self._run_builder.require_backend(compaction.model)
        context: tuple[Item, ...] = ()
        if compaction.previous_response_id is not None:
            before = await self._continuations.require_response_context(compaction.previous_response_id, caller, sealed)
            context = (*before.items, *await self._continuations.build_abandoned_outputs(before.pending, caller))
        abandoned = await self._continuations.build_abandoned_outputs(pending_calls_of(compaction.input), caller)
        insert_outputs(compaction.input, abandoned)
        items = (*context, *compaction.input.items)
        tokens = count_tokens(ModelRequest(items=items, instructions=compaction.instructions))
        usage = Usage(input_tokens=tokens, output_tokens=0)
        seal = self._seal_keys.for_caller(caller.id)
        resource = await run_off_loop(lambda: build_compaction(items, seal=seal, created_at=time.time(), usage=usage))
        # No request may open more, so a larger item could never be sent back.
        check_context_size(plain_size(resource["output"][0]["encrypted_content"]) or 0, self._max_bytes, "input")
        return json_reply(resource)

    async def count_input_tokens(self, request: Request) -> Reply:
        """Estimate the tokens of a request; see `count_tokens`. Models of many providers have no common count."""
        body, caller = request.json(), request.caller
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, request.reservation.acquire)
        response_request = read_request(body, sealed=sealed, find_item=find)
        before = await self._continuations.resolve(response_request, caller)
        prepared = await self._run_builder.build(
            response_request, "", context=before.context, can_wait=response_request.store, caller_id=caller.id
        )
        tools = await prepared.toolbox.collect_specs()
        first = prepared.request.model
        model_request = ModelRequest(items=first.items, instructions=first.instructions, tools=tuple(tools))
        return json_reply({"object": "response.input_tokens", "input_tokens": count_tokens(model_request)})


def count_tokens(request: ModelRequest) -> int:
    """Estimate the input tokens: one for four characters, and a fixed number for an image."""
    characters = len(request.instructions or "")
    for tool in request.tools:
        characters += len(tool.name) + len(tool.description) + len(orjson.dumps(dict(tool.parameters)))
    tokens = -(-characters // CHARS_PER_TOKEN) + (TOKENS_PER_ITEM if request.instructions else 0)
    return tokens + sum(_tokens_of(item) for item in request.items)


def _tokens_of(item: Item) -> int:
    if isinstance(item, FunctionCall):
        return TOKENS_PER_ITEM + _tokens_of_text(item.name + item.arguments)
    if isinstance(item, Message | FunctionCallOutput):
        return TOKENS_PER_ITEM + _tokens_of_parts(item.content)
    return _tokens_of_text(encode_items((item,)).decode())


def _tokens_of_parts(parts: Sequence[object]) -> int:
    tokens = 0
    for part in parts:
        match part:
            case TextContent(text=text):
                tokens += _tokens_of_text(text)
            case ImageContent() | ImageLink():
                tokens += TOKENS_PER_IMAGE
            case FileData(url=data) | AudioContent(data=data) | BinaryContent(data=data):
                tokens += -(-len(data) // CHARS_PER_TOKEN)
            case _:
                tokens += TOKENS_PER_ITEM
    return tokens


def _tokens_of_text(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)
