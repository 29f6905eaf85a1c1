"""All the work that DBOS keeps in one database, read without doing any of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from dbos import DBOS, DBOSClient

from holodeck.durable.dbos_engine import (
    SCHEMA,
    STAGES,
    WORK_VERSION,
    PlainJSON,
    first_line,
    listen_to_its_log,
    refuse_other_forms,
)
from holodeck.durable.engine import DamagedWorkError, KeptStep, KeptWork, Plain
from holodeck.durable.old_sqlite import give_clock
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import FORGET_BATCH
from holodeck.lib.urls import shown_origin

_MILLISECONDS = 1000.0
T = TypeVar("T")


class DBOSArchive:
    """Reads a database that an engine has made; opening one that is not there fails at its first use."""

    def __init__(self, url: str) -> None:
        self._place = url.removeprefix("sqlite:///") if url.startswith("sqlite") else shown_origin(url)
        listen_to_its_log()
        give_clock()
        refuse_other_forms()
        self._asked(lambda: DBOS.migrate(url, schema=SCHEMA))  # whoever began to make it may have died over that
        self._client = self._asked(
            lambda: DBOSClient(
                system_database_url=url,
                dbos_system_schema=SCHEMA,
                serializer=PlainJSON(),
                retry_connection_errors=False,
            )
        )

    def list(self, limit: int) -> Sequence[KeptWork]:
        return [_work(each) for each in self._asked(lambda: self._client.list_workflows(limit=limit, sort_desc=True))]

    def find(self, work_id: str) -> KeptWork | None:
        found = self._asked(lambda: self._client.list_workflows(workflow_ids=[work_id]))
        return _work(found[0]) if found else None

    def step_names(self, work_id: str) -> Sequence[str]:
        steps = self._asked(lambda: self._client.list_workflow_steps(work_id, load_output=False))
        return [each["function_name"] for each in steps]

    def steps(self, work_id: str) -> Sequence[KeptStep]:
        return [_step(each) for each in self._asked(lambda: self._client.list_workflow_steps(work_id))]

    def drop(self, work_id: str) -> None:
        self._asked(lambda: self._client.cancel_workflow(work_id))

    def forget(self, before: float) -> int:
        gone, until = 0, datetime.fromtimestamp(before, UTC).isoformat()
        while count := self._asked(lambda: self._forget_some(until)):
            gone += count
        return gone

    def _forget_some(self, until: str) -> int:
        old = self._client.list_workflows(
            completed_before=until, limit=FORGET_BATCH, load_input=False, load_output=False
        )
        if old:
            self._client.delete_workflows([each.workflow_id for each in old])
        return len(old)

    def close(self) -> None:
        with suppress(Exception):  # there is nothing that could be lost
            self._client.destroy()

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Exception as error:
            raise StorageError(f"What is kept in {self._place} cannot be read: {first_line(error)}") from error


def _work(status: Any) -> KeptWork:
    """`status` is what DBOS tells of a workflow: its types are its own affair. What it could not read is a string."""
    given: Plain = {}
    is_damaged = isinstance(status.output, str) or isinstance(status.error, str)
    try:
        given = status.input["args"][1] if status.input else {}
    except (LookupError, TypeError):
        is_damaged = True
    return KeptWork(
        id=status.workflow_id,
        stage=STAGES.get(status.status, "ended"),
        executor=status.executor_id or "",
        given=given,
        outcome=status.output if isinstance(status.output, dict) else None,
        is_dropped=status.status == "CANCELLED",
        is_current=(status.app_version or "").split(" ")[0] == WORK_VERSION,
        is_damaged=is_damaged,
    )


def _step(info: Any) -> KeptStep:
    output = info["output"]
    if isinstance(output, str) or isinstance(info["error"], str):
        raise DamagedWorkError(f"its step '{info['function_name']}' cannot be read")
    began = (info["started_at_epoch_ms"] or 0) / _MILLISECONDS
    return KeptStep(
        name=info["function_name"],
        result=output if isinstance(output, dict) else {},
        began=began,
        ended=(info["completed_at_epoch_ms"] or 0) / _MILLISECONDS or began,
    )
