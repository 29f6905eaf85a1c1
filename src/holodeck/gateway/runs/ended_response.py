"""The end of a response that has no run: its gateway is gone, or it never started."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import orjson

from holodeck.gateway.runs.run_rows import end_run
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.gateway.wire.response.resource import usage_to_json
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.models.items import Usage
from holodeck.storage.base import ResponseStore, StoredResponse


async def end_response(
    store: ResponseStore, record: StoredResponse, status: Literal["failed", "cancelled"], reason: str = ""
) -> None:
    """Store the end of a response that has no run, and complete its stored stream."""
    sent = await store.read_events(record.id, record.owner) or []
    resource = orjson.loads(record.resource) | {"status": status}
    # The real usage was lost with the process of the run.
    resource["usage"] = resource["usage"] or usage_to_json(Usage())
    if status == "failed":
        resource["error"] = {"code": "server_error", "message": reason}
    else:
        resource["incomplete_details"] = {"reason": "cancelled"}
    events = b"\n".join([*sent, *replay_events(resource, sent_events=SentEvents(sent))]) if sent else b""
    run = await store.runs.get_run(record.id, record.owner)
    await store.save(
        replace(
            record,
            status=status,
            resource=orjson.dumps(resource),
            events=events,
            run=None if run is None else end_run(run, status, resource["error"]),
        )
    )
