"""The end of a response that has no run: its gateway is gone, it never started, or its own end could not be stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import orjson

from holodeck.gateway.runs.run_rows import end_run
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.gateway.wire.response.resource import usage_to_json
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import STORE_RETRY_PAUSE
from holodeck.models.items import Usage
from holodeck.storage.base import UNFINISHED_STATUSES, ResponseStore, StoredResponse

NOT_STORED_TEXT = "The gateway could not store the end of this response."
STOPPED_TEXT = "The gateway stopped while this response was being made."
OTHER_VERSION_TEXT = (
    "The gateway stopped while this response was being made, and this version of HoloDeck cannot go on with what "
    "another one began."
)
ENDED_TEXT = "An error in the gateway ended this response."
DAMAGED_TEXT = "What the gateway kept of this response is damaged, and it cannot be gone on with."


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


async def fail_unstored_response(store: ResponseStore, response_id: str, caller_id: str) -> None:
    """Store a response as failed whose own end could not be stored, and wait until storage takes that."""
    while True:
        try:
            record = await store.get(response_id, caller_id)
            if record is not None and record.status in UNFINISHED_STATUSES:
                await end_response(store, record, "failed", NOT_STORED_TEXT)
        except StorageError as error:
            log.debug("gateway.storage_failed", response=response_id, error=error)
            await asyncio.sleep(STORE_RETRY_PAUSE)
        else:
            return
