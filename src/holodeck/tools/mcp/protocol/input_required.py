"""A modern server may answer a call with questions; they are answered, and the call is made again with the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.server_requests import RefusalError
from holodeck.tools.mcp.protocol.session import OnProgress, Session
from holodeck.tools.mcp.protocol.versions import mapping
from holodeck.tools.mcp.transports.base import Delivery

# Questions that a server may ask in the middle of one call.
MAX_INPUT_ROUNDS = 10
# When it asks nothing but wants to be called again.
INPUT_ROUND_PAUSE = 0.25


async def request_until_complete(
    session: Session,
    method: str,
    params: Mapping[str, Any],
    *,
    seconds: float,
    delivery: Delivery | None = None,
    on_progress: OnProgress | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Message:
    """Make a call until its result is complete."""
    asked = params
    for _ in range(MAX_INPUT_ROUNDS + 1):
        result = await session.request(
            method, asked, seconds=seconds, delivery=delivery, on_progress=on_progress, meta=meta
        )
        kind = result.get("resultType")
        if kind is None or kind == "complete":
            return result
        if kind != "input_required":
            raise session.errors.protocol("call", f"the result is of an unknown type {kind!r}", result_type=str(kind))
        asked = {**params, **await _build_next_round(session, result)}
    raise session.errors.protocol("call", f"the server asked for input more than {MAX_INPUT_ROUNDS} times")


async def _build_next_round(session: Session, result: Message) -> dict[str, Any]:
    """What the next round adds: our answers, and the server's own state exactly as it gave it."""
    added: dict[str, Any] = {}
    requests = mapping(result.get("inputRequests"))
    if requests:
        answers = await asyncio.gather(
            *(_answer_input_request(session, mapping(request)) for request in requests.values())
        )
        added["inputResponses"] = dict(zip(requests, answers, strict=True))
    else:
        await asyncio.sleep(INPUT_ROUND_PAUSE)
    if "requestState" in result:
        added["requestState"] = result["requestState"]
    return added


async def _answer_input_request(session: Session, request: Mapping[str, Any]) -> Mapping[str, Any]:
    method = str(request.get("method"))
    try:
        return await session.answer(method, mapping(request.get("params")))
    except RefusalError as refusal:
        text = f"the server asked for {method}, which was refused: {refusal}"
        raise session.errors.protocol("call", text, code=refusal.code) from refusal
