"""Groups of items that stay together when a context is made smaller: a call with its output, reasoning with its call.

Model APIs refuse half of a group. A message of a user or of the instructions is a group of its own; so is each turn of
the model, with its reasoning, its text, its calls and their outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from holodeck.gateway.context.tokens import CHARS_PER_TOKEN, count_items
from holodeck.lib.record import record
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message

GroupKind = Literal["instructions", "user", "model"]

CUT_NOTE = "\n[The rest of this output was cut.]"


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
