"""Calls with their outputs, encrypted in reasoning items, for clients that do not send `mcp_call` items back.

Such clients store the conversation themselves, and send back every reasoning item. Codex drops every `mcp_call`, the
AI SDK those of responses that are not stored, OpenAI's agents for JavaScript their outputs. Without the sealed call the
model would not know that it has made the call, and would repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import orjson

from holodeck.gateway.sealing import REASONING_PURPOSE, Seal
from holodeck.gateway.wire.item_ids import stem_of
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.gateway.wire.response.output_items import WireItem
from holodeck.lib.ids import new_id
from holodeck.models.items import FunctionCall, FunctionCallOutput, decode_item, encode_item

# Key in the encrypted content of a reasoning item. Other keys are those of providers.
_SEALED_CALL_KEY = "holodeck_call"


def build_sealed_call(
    call: FunctionCall, output: FunctionCallOutput, *, server_label: str, tool: str, seal: Seal
) -> WireItem:
    """Build a reasoning item without text that has the call and its output as encrypted content."""
    content = {"place": (server_label, tool), "call": encode_item(call), "output": encode_item(output)}
    encrypted = seal.seal(REASONING_PURPOSE, orjson.dumps({_SEALED_CALL_KEY: content}))
    item = {"id": new_id("rs"), "type": "reasoning", "status": "completed", "summary": []}
    return {**item, "encrypted_content": encrypted}


def read_sealed_call(opened: Mapping[str, Any], into: Input) -> bool:
    """Add the call in the decrypted content of a reasoning item to the input. Returns False if there is none.

    If the client has sent the call as an `mcp_call` as well, only its output is replaced by the sealed one.
    """
    content = opened.get(_SEALED_CALL_KEY)
    if content is None:
        return False
    call = cast(FunctionCall, decode_item(content["call"]))
    output = cast(FunctionCallOutput, decode_item(content["output"]))
    sent = into.find_call(stem_of(call))
    if sent is None:
        label, tool = content["place"]
        into.targets[call.call_id] = (label, tool)
        into.items += [replace(call, name=into.tool_name_of(label, tool)), output]
        return True
    for index in into.find_outputs(sent.call_id):
        into.items[index] = replace(output, call_id=sent.call_id, id=into.items[index].id)
    return True
