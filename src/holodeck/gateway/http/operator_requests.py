"""Requests of operators in the audit log: changes, and reads of what belongs to other callers.

Which requests these are is declared with their routes. An entry has the names in a request, and no value of its body
but the `name` that it is about.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from holodeck.gateway.api.route import BoundRoute, Route
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import KEY_PREFIX
from holodeck.gateway.http.errors import build_error_reply
from holodeck.gateway.http.replies import Reply, StreamedReply
from holodeck.gateway.http.request import Request
from holodeck.lib.errors import BadRequestError
from holodeck.lib.redaction import MASK

# Bytes of a body that is looked at for the names in it: far more than the body of an operator's request has.
MAX_NAMED_BODY_BYTES = 64 * 1024
# A key in the place of its name, which is a slip that must not put it into a file.
_KEY = re.compile(re.escape(KEY_PREFIX) + r"[\w-]{40,}")


async def run_audited(audit: AuditLog, bound: BoundRoute, request: Request) -> Reply | StreamedReply:
    """Run the handler of a route, and record the request with the status of its reply before the reply is sent.

    A request that is cancelled is recorded without a status: what it asked for may have been done.
    """
    route = bound.route
    try:
        reply = await bound.handler(request)
    except asyncio.CancelledError:
        audit.post_operator_request(_describe(route, request))
        raise
    except Exception as error:
        await _record(audit, route, request, build_error_reply(error))
        raise
    await _record(audit, route, request, reply if isinstance(reply, Reply) else Reply())
    return reply


async def _record(audit: AuditLog, route: Route, request: Request, reply: Reply) -> None:
    if route.roles or reply.owner != request.caller.id:
        fields = {**_describe(route, request), "owner": reply.owner or "", "status": reply.status}
        await audit.record_operator_request(fields, is_read=route.method == "GET")


def _describe(route: Route, request: Request) -> dict[str, object]:
    body = _read_body(request)
    named = body.get("name")
    subject = "/".join(request.path_params.values()) or (named if isinstance(named, str) else "")
    return {
        "caller": request.caller.id,
        "request_id": request.id,
        "method": route.method,
        "route": route.path,
        "subject": _KEY.sub(MASK, subject),
        "fields": _KEY.sub(MASK, ", ".join(sorted(_list_fields(body)))),
    }


def _read_body(request: Request) -> Mapping[str, object]:
    if not request.body or len(request.body) > MAX_NAMED_BODY_BYTES:
        return {}
    with suppress(BadRequestError):
        body = request.json()
        if isinstance(body, dict):
            return body
    return {}


def _list_fields(body: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of the fields of a body, and of those below them, without the name that the request is about."""
    for field, value in body.items():
        if isinstance(value, dict) and value:
            yield from (f"{field}.{inner}" for inner in value)
        elif field != "name":
            yield field
