"""Durable runs at the terminal: `holodeck run --durable` and `holodeck runs resume`.

They differ from plain runs in that each step is stored. The id is printed once the run is stored and claimed by this
process. After Ctrl-C, calls under way have `INTERRUPT_GRACE` seconds to end, and the command to resume is printed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.output.follow_run import OutputFormat, print_run
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.terminal_agent import open_agent
from holodeck.config.agent_loader import LoadedAgent
from holodeck.durable_runs.records import LocalState, RunInput, RunRecord, RunStore, file_digest, find_local_state
from holodeck.durable_runs.run import DurableRun
from holodeck.lib.errors import ExecutionError
from holodeck.lib.ids import new_id
from holodeck.lib.limits import INTERRUPT_GRACE
from holodeck.models.events import RunResult
from holodeck.models.items import Message
from holodeck.models.run_limits import RunLimits

if TYPE_CHECKING:
    from holodeck.cli.output.live_view import LiveScreen


def start_run(
    loaded: LoadedAgent,
    question: Message,
    max_turns: int | None,
    screen: Terminal | LiveScreen,
    output: OutputFormat,
    approved: Sequence[str] = (),
) -> RunResult:
    """Run a question and store each step. Raises `ConfigError` when durable runs are not installed.

    `approved`: see `open_agent`.
    """
    file = loaded.path.absolute()
    run_input = RunInput(
        agent=loaded.agent.name,
        file=file,
        digest=file_digest(file),
        question=(question,),
        started_at=time.time(),
        max_turns=max_turns,
    )
    run_id = new_id("run")
    notice = f"{run_id} is durable. After a crash or Ctrl-C: holodeck runs resume {run_id}"
    run_state = find_local_state(os.environ)
    return _run_durably(run_state, loaded, run_id, run_input, screen, output, notice, approved, is_new=True)


def resume_run(
    run_state: LocalState,
    run: RunRecord,
    loaded: LoadedAgent,
    screen: Terminal | LiveScreen,
    output: OutputFormat,
    approved: Sequence[str] = (),
) -> RunResult:
    """Run the remaining steps of an interrupted run."""
    notice = f"Going on with {run.id}: {_format_step_count(run.steps)} done"
    return _run_durably(run_state, loaded, run.id, run.input, screen, output, notice, approved, is_new=False)


def _run_durably(
    run_state: LocalState,
    loaded: LoadedAgent,
    run_id: str,
    run_input: RunInput,
    screen: Terminal | LiveScreen,
    output: OutputFormat,
    notice: str,
    approved: Sequence[str],
    *,
    is_new: bool,
) -> RunResult:
    """Run or resume. `notice` is printed once the run is stored and claimed by this process."""

    async def run_agent() -> RunResult:
        async with open_agent(loaded, screen, approved) as (agent, _):
            run = DurableRun(
                run_state,
                run_id,
                run_input,
                lambda steps: agent.stream(
                    run_input.question, limits=RunLimits(turns=run_input.max_turns), run_id=run_id, steps=steps
                ),
                on_started=lambda: screen.note(notice, dim=True),
                on_hand_over=lambda: _note_grace_period(screen),
            )
            events = run.start() if is_new else run.resume()
            return await print_run(events, agent, screen, output, durable_run_id=run_id)

    try:
        result = run_interruptible(run_agent())
    except KeyboardInterrupt:
        _note_resumable(run_state, run_id, screen)
        raise click.Abort from None
    with RunStore(run_state) as store:
        store.delete_old()
    return result


def _note_grace_period(screen: Terminal | LiveScreen) -> None:
    screen.note(f"A call is under way: it has {INTERRUPT_GRACE:g} s to end. Ctrl-C again: do not wait.", fg="yellow")


def _note_resumable(run_state: LocalState, run_id: str, screen: Terminal | LiveScreen) -> None:
    # A run that was stopped before it was stored cannot be found, and cannot be resumed.
    with suppress(ExecutionError), RunStore(run_state) as store:
        run = store.require_run(run_id)
        if run.status in {"running", "interrupted"}:
            screen.note(
                f"Left after {_format_step_count(run.steps)}. Go on with: holodeck runs resume {run_id}", always=True
            )


def _format_step_count(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
