"""Approval of calls by the person at the client, asked by elicitation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from holodeck.lib.escape import escape_unprintable
from holodeck.lib.limits import KIB
from holodeck.lib.record import record
from holodeck.tools.executor import APPROVAL_DECLINED, APPROVAL_NEEDED
from holodeck.tools.mcp.protocol.peer import ELICITATION_METHOD, Peer, RefusalError

# Bytes of arguments that a person is shown. A call with more is refused: its end could hide what matters.
MAX_SHOWN_ARGUMENTS = 64 * KIB


@record
class Refusal:
    """Why a call may not run."""

    text: str
    code: str
    """`APPROVAL_DECLINED` where the person was asked, or else `APPROVAL_NEEDED`."""


async def find_refusal(peer: Peer | None, server: str, tool: str, arguments: Mapping[str, Any]) -> Refusal | None:
    """Ask the person at the client to approve a call. Returns why it may not run, or None if it may."""
    subject = f"The tool '{tool}' of server '{server}' needs a person's approval"
    if peer is None or not peer.can_answer(ELICITATION_METHOD, {}):
        text = f"{subject}, and this client cannot be asked: it does not support elicitation."
        return Refusal(text=text, code=APPROVAL_NEEDED)
    shown = orjson.dumps(arguments, option=orjson.OPT_INDENT_2)
    if len(shown) > MAX_SHOWN_ARGUMENTS:
        text = f"{subject}, and its arguments are too long to be shown: {len(shown)} bytes."
        return Refusal(text=text, code=APPROVAL_NEEDED)
    question = {
        "message": f"Run the tool '{tool}' of server '{server}' with these arguments?\n"
        + escape_unprintable(shown.decode()),
        "requestedSchema": {"type": "object", "properties": {}},
    }
    try:
        answer = await peer.ask(ELICITATION_METHOD, question)
    except RefusalError as error:
        return Refusal(text=f"{subject}, and the client could not be asked: {error}.", code=APPROVAL_NEEDED)
    if answer.get("action") == "accept":
        return None
    return Refusal(text=f"{subject}, and it was not given.", code=APPROVAL_DECLINED)
