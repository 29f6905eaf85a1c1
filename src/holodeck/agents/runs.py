"""Durable runs of this user: listed, read, cancelled, and resumed by a program. Programs import it as `holodeck.runs`.

A run is durable with `agent.run(..., durable=True)` or `holodeck run --durable`. The functions read the store at once
and block meanwhile; `resume` is a coroutine. All raise `ConfigError` without the extra `durable`, and `StorageError`.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from typing_extensions import Unpack

from holodeck.agents.agent import Agent
from holodeck.agents.agent_spec import RunOptions
from holodeck.agents.durable import RunQuestion
from holodeck.agents.event_loops import run_in_background
from holodeck.agents.hooks import DepsT
from holodeck.durable_runs.records import RunRecord, RunStatus, RunStep, RunStore, build_run_steps, find_local_state
from holodeck.lib import log
from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import MAX_RUNS_LISTED
from holodeck.models.events import Event, OutputT, RunFinished, RunResult

__all__ = [
    "RunRecord",
    "RunStatus",
    "RunStep",
    "cancel",
    "get",
    "list",
    "list_steps",
    "resume",
    "resume_sync",
    "stream",
]


def list(*, limit: int = MAX_RUNS_LISTED) -> builtins.list[RunRecord]:  # noqa: A001 - read as `runs.list`
    """Return the newest runs of all agents, the last started first. Runs that ended 30 days ago are deleted."""
    state = find_local_state(os.environ)
    if state.is_empty:
        return []
    with RunStore(state) as store:
        store.delete_old()
        return [*store.list_runs(limit)]


def get(run_id: str) -> RunRecord:
    """Return a run. Raises `ExecutionError` if there is none of this id."""
    with RunStore(find_local_state(os.environ)) as store:
        return store.require_run(run_id)


def list_steps(run_id: str) -> builtins.list[RunStep]:
    """Return the turns and calls of a run, in the order of their start."""
    with RunStore(find_local_state(os.environ)) as store:
        store.require_run(run_id)
        return build_run_steps(store.read_steps(run_id))


def cancel(run_id: str) -> None:
    """Cancel a run for good, in whichever process it runs; one that runs stops within a second.

    Raises `ExecutionError` if there is none of this id, or if it has ended.
    """
    with RunStore(find_local_state(os.environ)) as store:
        store.cancel(store.require_run(run_id))


async def resume(
    run_id: str, agent: Agent[DepsT, OutputT], /, **options: Unpack[RunOptions[DepsT]]
) -> RunResult[OutputT]:
    """Go on with an interrupted run to its end, and return the result. Finished steps are not repeated.

    The question and the history are stored; give the other options again that the run had, such as `deps`. With the
    `session` of the run, the run is appended to it. Raises `ExecutionError` if the run has ended, is running, or is of
    another agent; `SessionConflictError` if the session has gone on without it.
    """
    async with aclosing(stream(run_id, agent, **options)) as events:
        async for event in events:
            if isinstance(event, RunFinished):
                return event.result
    raise RuntimeError("a run always finishes")


def resume_sync(
    run_id: str, agent: Agent[DepsT, OutputT], /, **options: Unpack[RunOptions[DepsT]]
) -> RunResult[OutputT]:
    """Do as `resume` does, and wait for the result, also where an event loop runs already, as in a notebook."""
    return run_in_background(resume(run_id, agent, **options))


async def stream(
    run_id: str, agent: Agent[DepsT, OutputT], /, **options: Unpack[RunOptions[DepsT]]
) -> AsyncGenerator[Event[OutputT], None]:
    """Go on with an interrupted run, and yield its events from the start: those of finished steps are replayed.

    Closing the iterator interrupts the run again, which can be resumed. Options and errors are those of `resume`.
    """
    if options.get("history"):
        raise ExecutionError(f"{run_id} has the history that it was started with: give none.")
    run = await asyncio.to_thread(_require_run_of, run_id, agent)
    question = RunQuestion(id=run.id, question=run.input.question, history=run.input.history, is_resumed=True)
    async with aclosing(agent._resume_run(question, options)) as events:
        async for event in events:
            yield event


def _require_run_of(run_id: str, agent: Agent[Any, Any]) -> RunRecord:
    """Return a run that this agent can resume. Logs a warning if the agent has changed since the run started."""
    run = get(run_id)
    run.require_resumable()
    if run.agent != agent.name:
        raise ExecutionError(f"{run.id} is a run of the agent '{run.agent}', not of '{agent.name}'.")
    if run.input.has_file_changed or (run.input.file is None and run.input.digest != agent._spec.digest):
        log.warning("runs.agent_changed", run=run.id, agent=run.agent)
    return run
