"""What came of our calls, sealed in a reasoning item: some clients that keep everything themselves send back no other.

Codex drops every `mcp_call`, the AI SDK those of responses that are not stored, OpenAI's agents for JavaScript their
outputs. The model would not know what it has done, and do it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import orjson

from holodeck.gateway.sealing import REASONING_PURPOSE, Seal
from holodeck.gateway.wire.item_ids import stem_of
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.gateway.wire.response.event_encoder import WireItem
from holodeck.lib.ids import new_id
from holodeck.models.items import FunctionCall, FunctionCallOutput
from holodeck.models.items_json import decode_item, encode_item

_SEALED_CALL_KEY = "holodeck_call"  # beside those under which providers keep their own


def build_sealed_call(
    call: FunctionCall, output: FunctionCallOutput, *, server_label: str, tool: str, seal: Seal
) -> WireItem:
    """A call with its output as an item that says nothing to anybody else."""
    made = {"place": (server_label, tool), "call": encode_item(call), "output": encode_item(output)}
    encrypted = seal.seal(REASONING_PURPOSE, orjson.dumps({_SEALED_CALL_KEY: made}))
    item = {"id": new_id("rs"), "type": "reasoning", "status": "completed", "summary": []}
    return {**item, "encrypted_content": encrypted}


def read_sealed_call(opened: Mapping[str, Any], into: Input) -> bool:
    """Put the call there, if it is one; a client that sent it along as an `mcp_call` has its output made whole."""
    made = opened.get(_SEALED_CALL_KEY)
    if made is None:
        return False
    call = cast(FunctionCall, decode_item(made["call"]))
    output = cast(FunctionCallOutput, decode_item(made["output"]))
    calls = (item for item in into.items if isinstance(item, FunctionCall))
    sent = next((item for item in calls if stem_of(item) == stem_of(call)), None)
    if sent is None:
        label, tool = made["place"]
        into.targets[call.call_id] = (label, tool)
        into.items += [replace(call, name=into.tool_name_of(label, tool)), output]
        return True
    for index, item in enumerate(into.items):
        if isinstance(item, FunctionCallOutput) and item.call_id == sent.call_id:
            into.items[index] = replace(output, call_id=sent.call_id, id=item.id)
    return True
