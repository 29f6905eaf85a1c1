"""`Input`, the result of reading the `input` of a request, with what all readers of its items need.

Sealed items are opened before: a `SealedInput` belongs to one request. `open` first adds up the plain sizes that the
items declare, compares them with the limit of the request, and acquires them from the byte budget of the gateway; only
then are they decrypted, inflated and decoded, off the event loop unless they are small. `get` then answers from memory.
An item that occurs N times counts N times and is opened once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.gateway.sealing import REASONING_PURPOSE, BrokenSealError, Seal, is_sealed, plain_size
from holodeck.gateway.wire.compaction_item import COMPACTION_PURPOSE, decode_compaction
from holodeck.gateway.wire.item_ids import stem_of
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.lib.off_loop import run_off_loop
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.tools.mcp.names import normalize_tool_name

_DECODERS: dict[str, Callable[[bytes], Any]] = {REASONING_PURPOSE: orjson.loads, COMPACTION_PURPOSE: decode_compaction}
"""By purpose, which is also the type of the items."""
# Largest size that is decoded on the event loop, in a few milliseconds: a thread would take longer to start.
_MAX_INLINE_BYTES = 64 * 1024

Sealed = tuple[str, str]
"""A purpose and a sealed text."""


class SealedInput:
    """The decoded contents of the sealed items of one request."""

    def __init__(self, seal: Seal, *, max_bytes: int, acquire: Callable[[int], None]) -> None:
        """`max_bytes`: limit of plain bytes for all items. `acquire`: takes bytes from the budget, or raises."""
        self._sizes: dict[str, int] = {}
        self._seal = seal
        self._max_bytes = max_bytes
        self._acquire = acquire
        self._contents: dict[Sealed, Any] = {}

    @property
    def size(self) -> int:
        """Plain bytes of all opened items."""
        return sum(self._sizes.values())

    async def open(self, entries: Iterable[object], *, param: str, other_bytes: int = 0) -> None:
        """Open the sealed items among these entries. They replace those opened for the same `param` in the count.

        `param`: the path of the entries in the request. `other_bytes`: other bytes of its context. Raises
        `BadRequestError` (`context_too_long`), or what `acquire` raises, before anything is inflated. An item that
        cannot be opened is skipped here, and refused by the reader of the input, which knows its path.
        """
        found = [sealed for entry in entries if (sealed := _find_sealed(entry)) is not None]
        size = sum(plain_size(text) or 0 for _, text in found)
        acquired = self._sizes.get(param, 0)
        self._sizes[param] = size
        if self.size + other_bytes > self._max_bytes:
            message = (
                f"The context is too long: with what its sealed items hold it is more than {self._max_bytes} bytes. "
                "Leave out earlier ones."
            )
            refuse(message, param, "context_too_long")
        if size > acquired:
            self._acquire(size - acquired)
        fresh = [sealed for sealed in dict.fromkeys(found) if sealed not in self._contents]
        if size + sum(len(text) for _, text in fresh) <= _MAX_INLINE_BYTES:
            self._contents |= self._decode(fresh)
        else:
            self._contents |= await run_off_loop(lambda: self._decode(fresh))

    def get(self, purpose: str, text: str) -> Any:
        """Return the decoded content of a sealed text. None: it could not be opened for this caller."""
        return self._contents.get((purpose, text))

    def _decode(self, sealed: Iterable[Sealed]) -> dict[Sealed, Any]:
        contents = {}
        for purpose, text in sealed:
            try:
                content = self._seal.open(purpose, text)
            except BrokenSealError:
                continue
            contents[purpose, text] = _DECODERS[purpose](content)
        return contents


def _find_sealed(entry: object) -> Sealed | None:
    if not isinstance(entry, dict):
        return None
    purpose, text = entry.get("type"), entry.get("encrypted_content")
    if not isinstance(purpose, str) or purpose not in _DECODERS or not isinstance(text, str) or not is_sealed(text):
        return None
    return purpose, text


WireItem = dict[str, Any]
FindItem = Callable[[str], Mapping[str, Any] | None]
"""Finds the stored item of an id that the caller may refer to."""
ToolNameOf = Callable[[str, str], str]
"""Maps a server's label and the name of its tool to the name of the tool for the model."""


def find_nothing(item_id: str) -> None:
    """Find no item, where there is no store."""


def plain_tool_name(server_label: str, tool: str) -> str:
    """Return the name of a tool for the model, if no other tool has the same."""
    return normalize_tool_name(tool)


@record
class ApprovalAnswer:
    """The answer to an approval request."""

    request_id: str
    approve: bool
    reason: str | None = None
    param: str = ""
    """The path of the answer in the request."""
    position: int = 0
    """The number of items before it."""
    is_past: bool = False
    """True for an answer that was processed by an earlier request: a message of the assistant follows it."""


@dataclass(kw_only=True, slots=True)
class Input:
    """A parsed input. `items` are for the model, `wire_items` for the client that lists its input again."""

    items: list[Item] = field(default_factory=list)
    wire_items: list[WireItem] = field(default_factory=list)
    approvals: list[ApprovalAnswer] = field(default_factory=list)
    pending_calls: list[FunctionCall] = field(default_factory=list)
    """Calls whose approval requests are in the input."""
    targets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The target of each call of an MCP server, as label and tool, by call id."""
    tool_lists: dict[str, WireItem] = field(default_factory=dict)
    """`mcp_list_tools` items of the input, by the label of their server."""
    shown_calls: set[str] = field(default_factory=set)
    """Ids of calls that the gateway has run and a message has shown, which come back with their results."""
    compaction_trigger: str | None = None
    """The path of the item that asks to compact the context. None: there is none."""
    generated_ids: set[str] = field(default_factory=set)
    """Item ids that were generated for calls without one."""
    find_item: FindItem = find_nothing
    tool_name_of: ToolNameOf = plain_tool_name
    list_file_paths: Callable[[], Mapping[str, str]] | None = None
    """Lists the links to files with the paths of their fields. None: `wire_items` have them."""
    file_advice: str = "send the content as 'file_data'"
    """What a client can do instead of a link to a file."""
    sealed: SealedInput | None = None
    """The opened sealed items. None: a sealed item is refused."""
    _calls: dict[str, FunctionCall] = field(default_factory=dict, repr=False, compare=False)
    """The first call of each stem among the indexed items."""
    _outputs: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)
    """The positions of the outputs of each call id among the indexed items."""
    _indexed: int = 0
    """How many of the items are indexed."""

    def find_call(self, stem: str) -> FunctionCall | None:
        """Return the first call of a stem among the items so far."""
        self._index_items()
        return self._calls.get(stem)

    def find_outputs(self, call_id: str) -> Sequence[int]:
        """Return the positions of the outputs of a call among the items so far."""
        self._index_items()
        return self._outputs.get(call_id, ())

    def drop_items(self) -> None:
        """Begin anew: what comes next replaces all items so far."""
        self.items, self.pending_calls, self.approvals = [], [], []
        self._calls, self._outputs, self._indexed = {}, {}, 0

    def drop_last_message(self) -> None:
        """Drop the last item, which is a message."""
        self.items.pop()
        self._indexed = min(self._indexed, len(self.items))

    def _index_items(self) -> None:
        for position in range(self._indexed, len(self.items)):
            item = self.items[position]
            if isinstance(item, FunctionCall):
                self._calls.setdefault(stem_of(item), item)
            elif isinstance(item, FunctionCallOutput):
                self._outputs.setdefault(item.call_id, []).append(position)
        self._indexed = len(self.items)
