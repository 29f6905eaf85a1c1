"""`WorkArchive` on a database of DBOS: reads, cancels and deletes work without running any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from dbos import DBOS, DBOSClient

from holodeck.durable.base import DamagedWorkError, JSONObject, StoredStep, StoredWork
from holodeck.durable.dbos_database import SCHEMA, first_line, install_clock
from holodeck.durable.dbos_engine import (
    STAGES,
    WORK_VERSION,
    JSONSerializer,
    redirect_dbos_log,
    refuse_other_serializers,
)
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import DELETE_BATCH
from holodeck.lib.net.urls import shown_origin

_MILLISECONDS = 1000.0
T = TypeVar("T")


class DBOSArchive:
    """Opens a database that an engine has created. Raises `StorageError`, also when there is none."""

    def __init__(self, url: str) -> None:
        self._database = url.removeprefix("sqlite:///") if url.startswith("sqlite") else shown_origin(url)
        redirect_dbos_log()
        install_clock()
        refuse_other_serializers()
        # The process that created the database may have died before the schema was complete.
        self._query(lambda: DBOS.migrate(url, schema=SCHEMA))
        self._client = self._query(
            lambda: DBOSClient(
                system_database_url=url,
                dbos_system_schema=SCHEMA,
                serializer=JSONSerializer(),
                retry_connection_errors=False,
            )
        )

    def list_work(self, limit: int) -> Sequence[StoredWork]:
        return [
            _work_of(each) for each in self._query(lambda: self._client.list_workflows(limit=limit, sort_desc=True))
        ]

    def find_work(self, work_id: str) -> StoredWork | None:
        found = self._query(lambda: self._client.list_workflows(workflow_ids=[work_id]))
        return _work_of(found[0]) if found else None

    def list_step_names(self, work_id: str) -> Sequence[str]:
        steps = self._query(lambda: self._client.list_workflow_steps(work_id, load_output=False))
        return [each["function_name"] for each in steps]

    def read_steps(self, work_id: str) -> Sequence[StoredStep]:
        return [_step_of(each) for each in self._query(lambda: self._client.list_workflow_steps(work_id))]

    def cancel(self, work_id: str) -> None:
        self._query(lambda: self._client.cancel_workflow(work_id))

    def delete_older_than(self, before: float) -> int:
        total, until = 0, datetime.fromtimestamp(before, UTC).isoformat()
        while count := self._query(lambda: self._delete_batch(until)):
            total += count
        return total

    def close(self) -> None:
        # Errors of closing are ignored: nothing is pending that could be lost.
        with suppress(Exception):
            self._client.destroy()

    def _delete_batch(self, until: str) -> int:
        old = self._client.list_workflows(
            completed_before=until, limit=DELETE_BATCH, load_input=False, load_output=False
        )
        if old:
            self._client.delete_workflows([each.workflow_id for each in old])
        return len(old)

    def _query(self, run: Callable[[], T]) -> T:
        try:
            return run()
        except Exception as error:
            raise StorageError(f"The durable runs in {self._database} cannot be read: {first_line(error)}") from error


def _work_of(status: Any) -> StoredWork:
    """Convert the status of a workflow, whose type is private to DBOS. A value that DBOS could not read is a string."""
    work_input: JSONObject = {}
    is_damaged = isinstance(status.output, str) or isinstance(status.error, str)
    try:
        work_input = status.input["args"][1] if status.input else {}
    except (LookupError, TypeError):
        is_damaged = True
    return StoredWork(
        id=status.workflow_id,
        stage=STAGES.get(status.status, "ended"),
        executor=status.executor_id or "",
        work_input=work_input,
        outcome=status.output if isinstance(status.output, dict) else None,
        is_cancelled=status.status == "CANCELLED",
        is_current_version=(status.app_version or "").split(" ")[0] == WORK_VERSION,
        is_damaged=is_damaged,
    )


def _step_of(info: Any) -> StoredStep:
    output = info["output"]
    if isinstance(output, str) or isinstance(info["error"], str):
        raise DamagedWorkError(f"its step '{info['function_name']}' cannot be read")
    started_at = (info["started_at_epoch_ms"] or 0) / _MILLISECONDS
    return StoredStep(
        name=info["function_name"],
        result=output if isinstance(output, dict) else {},
        started_at=started_at,
        ended_at=(info["completed_at_epoch_ms"] or 0) / _MILLISECONDS or started_at,
    )
