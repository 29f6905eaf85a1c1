"""A durable run at the terminal: like any other, but its id is told, and what is left of it can be gone on with."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import click

from holodeck.cli.answering import Form, show_answer
from holodeck.cli.interrupts import run_work
from holodeck.cli.opening import opened
from holodeck.cli.terminal import Terminal
from holodeck.config.loader import LoadedAgent
from holodeck.lib.errors import ExecutionError
from holodeck.lib.ids import new_id
from holodeck.lib.limits import LEAVE_GRACE
from holodeck.models.events import RunResult
from holodeck.models.items import Message
from holodeck.runs.home import Home, find_home
from holodeck.runs.kept_run import KeptRun, Task, digest_of
from holodeck.runs.running import DurableRun
from holodeck.runs.shelf import Shelf


def begin(loaded: LoadedAgent, question: Message, max_turns: int | None, terminal: Terminal, form: Form) -> RunResult:
    """Ask, and keep each step. Raises `ConfigError` when durable runs are not installed."""
    home, file = find_home(os.environ), loaded.path.absolute()
    task = Task(
        agent=loaded.agent.name,
        file=file,
        digest=digest_of(file),
        question=question,
        began=time.time(),
        max_turns=max_turns,
    )
    run_id = new_id("run")
    words = f"{run_id} is durable. After a crash or Ctrl-C: holodeck runs resume {run_id}"
    return _carry_out(home, loaded, run_id, task, terminal, form, words, is_new=True)


def go_on(home: Home, run: KeptRun, loaded: LoadedAgent, terminal: Terminal, form: Form) -> RunResult:
    """The rest of a run that was interrupted."""
    words = f"Going on with {run.id}: {_steps(run.steps)} done"
    return _carry_out(home, loaded, run.id, run.task, terminal, form, words, is_new=False)


def _carry_out(
    home: Home,
    loaded: LoadedAgent,
    run_id: str,
    task: Task,
    terminal: Terminal,
    form: Form,
    words: str,
    *,
    is_new: bool,
) -> RunResult:
    """`words` are said once the run is kept, and ours."""

    async def ask() -> RunResult:
        async with opened(loaded, terminal) as (agent, _):
            run = DurableRun(
                home,
                agent,
                run_id,
                task,
                on_begun=lambda: terminal.note(words, dim=True),
                on_leaving=lambda: _tell_leaving(terminal),
            )
            events = run.begin() if is_new else run.resume()
            return await show_answer(events, agent, terminal, form, kept_as=run_id)

    try:
        result = run_work(ask())
    except KeyboardInterrupt:
        _tell_left(home, run_id, terminal)
        raise click.Abort from None
    with Shelf(home) as shelf:
        shelf.forget_old()
    return result


def _tell_leaving(terminal: Terminal) -> None:
    terminal.note(f"A call is under way: it has {LEAVE_GRACE:g} s to end. Ctrl-C again: do not wait.", fg="yellow")


def _tell_left(home: Home, run_id: str, terminal: Terminal) -> None:
    with suppress(ExecutionError), Shelf(home) as shelf:  # stopped before it was kept, it is not there
        run = shelf.find(run_id)
        if run.status in {"running", "interrupted"}:
            terminal.note(f"Left after {_steps(run.steps)}. Go on with: holodeck runs resume {run_id}", always=True)


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
