"""`/v1/responses/compact` and `/v1/responses/input_tokens`: how large a conversation is, and how to make it small."""

from __future__ import annotations

import time
from collections.abc import Sequence

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.approvals import insert_outputs
from holodeck.gateway.continuation.conversation_lock import check_context_size
from holodeck.gateway.continuation.pending_calls import pending_calls_of
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request_body import RequestReservation
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.sealing import SealKeys, plain_size
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.request.compact import build_compaction, read_compact_request
from holodeck.lib.off_loop import run_off_loop
from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Item, Message, Usage
from holodeck.models.items_json import encode_items
from holodeck.models.model_io import ModelRequest

# Of English text and JSON, in all of today's tokenizers, roughly.
CHARS_PER_TOKEN = 4
# What the role and the ends of a message take.
TOKENS_PER_ITEM = 4
# A picture of 1024 x 1024 at high detail, as OpenAI counts it.
TOKENS_PER_IMAGE = 765


class ContextEndpoints:
    """Answers about a conversation without asking the model."""

    def __init__(
        self, run_builder: RunBuilder, continuations: ContinuationResolver, seal_keys: SealKeys, *, max_bytes: int
    ) -> None:
        """`max_bytes`: bytes that a folded conversation may have, unfolded."""
        self._max_bytes = max_bytes
        self._run_builder = run_builder
        self._continuations = continuations
        self._seal_keys = seal_keys

    async def compact(self, body: object, caller: Caller, reservation: RequestReservation) -> Reply:
        """The conversation as one item that the client cannot read. It is folded, not summed up: nothing is lost."""
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, reservation.acquire)
        request = read_compact_request(body, sealed=sealed, find_item=find)
        self._run_builder.require_backend(request.model)
        items: tuple[Item, ...] = ()
        if request.previous_response_id is not None:
            before = await self._continuations.require_response_context(request.previous_response_id, caller, sealed)
            items = (*before.items, *await self._continuations.build_abandoned_outputs(before.pending, caller))
        insert_outputs(
            request.input, await self._continuations.build_abandoned_outputs(pending_calls_of(request.input), caller)
        )
        whole = (*items, *request.input.items)
        tokens = count_tokens(ModelRequest(items=whole, instructions=request.instructions))
        usage = Usage(input_tokens=tokens, output_tokens=0)
        seal = self._seal_keys.for_caller(caller.id)
        resource = await run_off_loop(lambda: build_compaction(whole, seal=seal, created_at=time.time(), usage=usage))
        # A larger one could never be sent back: no request may open so much.
        check_context_size(plain_size(resource["output"][0]["encrypted_content"]) or 0, self._max_bytes, "input")
        return json_reply(resource)

    async def count_input_tokens(self, body: object, caller: Caller, reservation: RequestReservation) -> Reply:
        """An estimate, which is all that can be said for models of many makers: see `count_tokens`."""
        find = await self._continuations.build_item_lookup(body, caller)
        sealed = await self._continuations.open_sealed(body, find, caller, reservation.acquire)
        request = read_request(body, sealed=sealed, find_item=find)
        before = await self._continuations.resolve(request, caller)
        start = await self._run_builder.build(
            request, "", context=before.context, can_wait=request.store, caller_id=caller.id
        )
        tools = await start.toolbox.collect_specs()
        first = start.request.model
        asked = ModelRequest(items=first.items, instructions=first.instructions, tools=tuple(tools))
        return json_reply({"object": "response.input_tokens", "input_tokens": count_tokens(asked)})


def count_tokens(request: ModelRequest) -> int:
    """About how many tokens a model reads: four characters make one, a picture counts as one of 1024 by 1024."""
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
