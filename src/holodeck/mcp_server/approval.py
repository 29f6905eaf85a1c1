"""Approval of calls by the person at the client, asked by elicitation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib.escape import escape_unprintable
from holodeck.lib.limits import KIB
from holodeck.tools.calls import Approver, CallPipeline, build_unapproved
from holodeck.tools.executor import APPROVAL_DECLINED, CallRules, CallTarget, Refusal, ToolCall
from holodeck.tools.mcp.protocol.peer import ELICITATION_METHOD, Peer, RefusalError

# Bytes of arguments that a person is shown. A call with more is refused: its end could hide what matters.
MAX_SHOWN_ARGUMENTS = 64 * KIB


class PeerApprover(Approver):
    """Asks the person at the client by elicitation."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def approve(self, call: ToolCall, rules: CallRules, pipeline: CallPipeline) -> ToolCall | Refusal:
        refusal = await self._ask(rules.target, call.arguments)
        return replace(call, is_approved=True) if refusal is None else refusal

    async def _ask(self, target: CallTarget, arguments: Mapping[str, Any]) -> Refusal | None:
        if not self._peer.can_answer(ELICITATION_METHOD, {}):
            return build_unapproved(target, "this client cannot be asked: it does not support elicitation.")
        shown = orjson.dumps(arguments, option=orjson.OPT_INDENT_2)
        if len(shown) > MAX_SHOWN_ARGUMENTS:
            return build_unapproved(target, f"its arguments are too long to be shown: {len(shown)} bytes.")
        question = {
            "message": f"Run the tool '{target.tool}' of server '{target.server}' with these arguments?\n"
            + escape_unprintable(shown.decode()),
            "requestedSchema": {"type": "object", "properties": {}},
        }
        try:
            answer = await self._peer.ask(ELICITATION_METHOD, question)
        except RefusalError as error:
            return build_unapproved(target, f"the client could not be asked: {error}.")
        if answer.get("action") == "accept":
            return None
        return build_unapproved(target, "it was not given.", code=APPROVAL_DECLINED)
