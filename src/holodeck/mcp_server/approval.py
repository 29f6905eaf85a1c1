"""Approval of calls by the person at the client, asked by elicitation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from holodeck.lib.escape import escape_unprintable
from holodeck.lib.limits import KIB
from holodeck.tools.mcp.protocol.peer import ELICITATION_METHOD, Peer, RefusalError

# Bytes of arguments that a person is shown. A call with more is refused: its end could hide what matters.
MAX_SHOWN_ARGUMENTS = 64 * KIB


async def find_refusal(peer: Peer | None, server: str, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Ask the person at the client to approve a call. Returns why it may not run, or None if it may."""
    subject = f"The tool '{tool}' of server '{server}' needs a person's approval"
    if peer is None or not peer.can_answer(ELICITATION_METHOD, {}):
        return f"{subject}, and this client cannot be asked: it does not support elicitation."
    shown = orjson.dumps(arguments, option=orjson.OPT_INDENT_2)
    if len(shown) > MAX_SHOWN_ARGUMENTS:
        return f"{subject}, and its arguments are too long to be shown: {len(shown)} bytes."
    question = {
        "message": f"Run the tool '{tool}' of server '{server}' with these arguments?\n"
        + escape_unprintable(shown.decode()),
        "requestedSchema": {"type": "object", "properties": {}},
    }
    try:
        answer = await peer.ask(ELICITATION_METHOD, question)
    except RefusalError as error:
        return f"{subject}, and the client could not be asked: {error}."
    return None if answer.get("action") == "accept" else f"{subject}, and it was not given."
