"""Truncation (`truncation: auto`): the oldest items are left out of a context that a model does not have room for.

`TruncatingModel` belongs to one run. It leaves items out before it asks, if the operator's file says how many tokens
the model has (`context_tokens`), and once more when the provider answers that the context is too long. Instructions,
the newest message of a user, the newest group and calls without an output are never left out.

Groups of items stay together: a call with its output, reasoning with its call. Model APIs refuse half of a group. A
message of a user or of the instructions is a group of its own; so is each turn of the model, with its reasoning, its
text, its calls and their outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from holodeck.engine.tokens import CHARS_PER_TOKEN, count_items, count_tokens
from holodeck.lib import log
from holodeck.lib.errors import CONTEXT_TOO_LONG, ModelError
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches

GroupKind = Literal["instructions", "user", "model"]

CUT_NOTE = "\n[The rest of this output was cut.]"
# Share of the model's tokens that is left for its answer, if the request does not say how long that may be.
_ANSWER_SHARE = 8


@record
class ItemGroup:
    """Items of a context that are kept or left out together."""

    kind: GroupKind
    positions: tuple[int, ...]
    items: tuple[Item, ...]
    tokens: int
    """Estimated: see `count_items`."""

    @property
    def is_open(self) -> bool:
        """Whether it has a call without an output: that is yet to come, and needs its call."""
        answered = {item.call_id for item in self.items if isinstance(item, FunctionCallOutput)}
        return any(isinstance(item, FunctionCall) and item.call_id not in answered for item in self.items)


def group_items(items: Sequence[Item]) -> list[ItemGroup]:
    """Return the groups of a context, in the order of their first items."""
    groups: list[tuple[GroupKind, list[int]]] = []
    group_of_call: dict[str, list[int]] = {}
    is_turn_open = False
    for position, item in enumerate(items):
        if isinstance(item, FunctionCallOutput) and item.call_id in group_of_call:
            group_of_call[item.call_id].append(position)
            is_turn_open = False
            continue
        kind = _kind_of(item)
        if kind != "model" or not is_turn_open:
            groups.append((kind, []))
        groups[-1][1].append(position)
        is_turn_open = kind == "model" and not isinstance(item, FunctionCallOutput)
        if isinstance(item, FunctionCall):
            group_of_call[item.call_id] = groups[-1][1]
    return [_build_group(kind, positions, items) for kind, positions in groups]


def list_items(groups: Iterable[ItemGroup]) -> list[Item]:
    """Return the items of groups, in the order of the context that the groups are of."""
    placed = (pair for group in groups for pair in zip(group.positions, group.items, strict=True))
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def cut_outputs(group: ItemGroup, chars: int) -> ItemGroup:
    """Return the group with each output cut to its first `chars` characters of text; parts other than text are left
    out."""
    items = tuple(_cut_output(item, chars) if isinstance(item, FunctionCallOutput) else item for item in group.items)
    return group if items == group.items else replace(group, items=items, tokens=count_items(items))


def _cut_output(output: FunctionCallOutput, chars: int) -> FunctionCallOutput:
    if count_items((output,)) * CHARS_PER_TOKEN <= chars:
        return output
    text = "".join(part.text for part in output.content if isinstance(part, TextContent))
    return replace(output, content=(TextContent(text=text[:chars] + CUT_NOTE),))


def _kind_of(item: Item) -> GroupKind:
    if isinstance(item, Message) and item.role != "assistant":
        return "user" if item.role == "user" else "instructions"
    return "model"


def _build_group(kind: GroupKind, positions: Sequence[int], items: Sequence[Item]) -> ItemGroup:
    own = tuple(items[position] for position in positions)
    return ItemGroup(kind=kind, positions=tuple(positions), items=own, tokens=count_items(own))


def leave_out_oldest(groups: Sequence[ItemGroup], max_tokens: int) -> list[ItemGroup]:
    """Return the groups without the oldest ones, so many that the rest has at most `max_tokens`, where that is
    possible."""
    needed = {*find_needed_groups(groups), len(groups) - 1}
    surplus = sum(group.tokens for group in groups) - max_tokens
    kept = []
    for index, group in enumerate(groups):
        if surplus > 0 and index not in needed:
            surplus -= group.tokens
        else:
            kept.append(group)
    return kept


def find_needed_groups(groups: Sequence[ItemGroup]) -> set[int]:
    """Return the indexes of groups that are never left out: instructions, open calls, and the newest message of a
    user."""
    users = [index for index, group in enumerate(groups) if group.kind == "user"]
    return {index for index, group in enumerate(groups) if group.kind == "instructions" or group.is_open} | set(
        users[-1:]
    )


class TruncatingModel(ModelWrapper):
    """Asks a model with as many of the newest items as it has room for."""

    def __init__(self, inner: ModelProvider, *, context_tokens: int | None) -> None:
        """`context_tokens`: of the request and its answer together. None: the provider's error tells."""
        super().__init__(inner)
        self._context_tokens = context_tokens
        self._max_tokens: int | None = None
        """Estimated tokens that are sent, at most, after the provider has refused more."""

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send the request without its oldest items. Raises `ModelError` if it is still too long at the second try."""
        request = self._truncate(request, self._find_limit(request))
        has_begun = False
        batches = stream_in_batches(self._inner, request)
        try:
            async for batch in batches:
                has_begun = True
                yield batch
        except ModelError as error:
            if has_begun or error.code != CONTEXT_TOO_LONG:
                raise
            # Its real number of tokens is not known here: half of what was too much is likely to fit.
            self._max_tokens = count_tokens(request) // 2
            smaller = self._truncate(request, self._max_tokens)
            if smaller is request:
                raise
        else:
            return
        finally:
            await batches.aclose()
        batches = stream_in_batches(self._inner, smaller)
        try:
            async for batch in batches:
                yield batch
        finally:
            await batches.aclose()

    def _find_limit(self, request: ModelRequest) -> int | None:
        if self._max_tokens is not None or self._context_tokens is None:
            return self._max_tokens
        answer = request.max_tokens or self._context_tokens // _ANSWER_SHARE
        return max(self._context_tokens - answer, self._context_tokens // 2)

    def _truncate(self, request: ModelRequest, max_tokens: int | None) -> ModelRequest:
        tokens = count_tokens(request)
        if max_tokens is None or tokens <= max_tokens:
            return request
        items = truncate_items(request.items, max_tokens - (tokens - count_items(request.items)))
        if len(items) == len(request.items):
            return request
        log.info("gateway.context_truncated", left_out=len(request.items) - len(items), tokens=tokens, limit=max_tokens)
        return replace(request, items=items)


def truncate_items(items: Sequence[Item], max_tokens: int) -> tuple[Item, ...]:
    """Return the items without the oldest groups, as in `leave_out_oldest`."""
    return tuple(list_items(leave_out_oldest(group_items(items), max_tokens)))
