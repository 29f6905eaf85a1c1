"""Durable runs of an agent in code: each step is stored, as with `holodeck run --durable`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.engine.steps import Steps
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.record import record
from holodeck.models.events import Event, RunFinished
from holodeck.models.items import Item

if TYPE_CHECKING:
    from holodeck.durable_runs.records import LocalState

_cleaned: set[Path] = set()
"""Folders whose old runs this process has deleted: once is enough, since they are stored for days."""


@record
class RunQuestion:
    """The values that a run is started with, or was."""

    id: str
    """Id of the run."""
    question: tuple[Item, ...]
    history: tuple[Item, ...] = ()
    is_resumed: bool = False
    """Whether it is a stored run that goes on."""


async def stream_durably(
    agent: str, digest: str, run: RunQuestion, open_stream: Callable[[Steps], AsyncGenerator[Event, None]]
) -> AsyncGenerator[Event, None]:
    """Start a durable run, or go on with one, and yield its events. `open_stream` runs the agent with the steps.

    Raises `ConfigError` without the extra, `ExecutionError` for a run that cannot go on here, and `StorageError`. A run
    that another process has cancelled ends with the status `cancelled`.
    """
    # Here, because the engine is in an extra, and takes long to import.
    from holodeck.durable_runs.records import RunInput, find_local_state
    from holodeck.durable_runs.run import DurableRun

    run_input = RunInput(
        agent=agent, file=None, digest=digest, question=run.question, history=run.history, started_at=time.time()
    )
    state = find_local_state(os.environ)
    if state.folder not in _cleaned:
        _cleaned.add(state.folder)
        await asyncio.to_thread(_delete_old_runs, state)
    durable = DurableRun(state, run.id, run_input, open_stream)
    transcript = RunTranscript()
    async with aclosing(durable.resume() if run.is_resumed else durable.start()) as events:
        async for event in events:
            transcript.add(event)
            yield event
    if transcript.result is None:
        yield RunFinished(result=transcript.build_stopped_result())


def _delete_old_runs(state: LocalState) -> None:
    from holodeck.durable_runs.records import RunStore

    if not state.is_empty:
        with RunStore(state) as store:
            store.delete_old()
