"""The trust question at the terminal: what a file would do, shown whole, and one question whose default is no.

`require_trust` is called before a command starts, dials or imports anything for a file. Without a terminal it refuses,
with the ways to allow the file. Text of the file is escaped before it is shown.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from holodeck.cli.output.stdin import ask_yes_or_no, can_ask
from holodeck.config.actions import NOT_COVERED, Action, ActionKind, Actions, describe_not_covered
from holodeck.lib.errors import ConfigError, ExecutionError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.trust import Change, Verdict, check_trust, open_trust_store, record_path, save_trust

_HEADINGS: dict[ActionKind, str] = {
    "model": "asks a model",
    "process": "starts programs",
    "connection": "connects to servers",
    "code": "imports Python code",
    "script": "runs files of its folder",
    "file": "reads files",
    "variables": "takes values from files",
    "gateway": "serves, with these settings of the gateway",
    "shared": "uses your own servers of ~/.holodeck/config.yaml",
}
_SHORT_HASH = 12
_HELP = (
    "  y: the file may do this, now and later. You are asked again when it would do something else.\n"
    "  n, or Enter alone: nothing is started.\n"
    "  Take it back with: holodeck trust revoke FILE\n"
)

trust_option = click.option(
    "--trust", "is_trusted", is_flag=True, help="Let the file do what it says, this time, without the question."
)


def require_trust(file: Path, actions: Actions, *, is_trusted: bool = False) -> None:
    """Return if the user trusts the file, or says yes now. Raises `ConfigError` otherwise.

    `is_trusted`: the user has said so on the command line, for this time.
    """
    if is_trusted:
        return
    store = open_trust_store()
    verdict = check_trust(file, actions, environ=os.environ, store=store)
    if verdict.state == "trusted":
        return
    if not can_ask():
        raise _refusal(file, actions, verdict)
    show_actions(file, actions, verdict)
    if not ask_trust():
        raise ConfigError.of([Problem(message="you do not trust this file: nothing was started", file=str(file))])
    try:
        save_trust(file, actions, store)
    except ExecutionError as error:
        click.echo(f"You are asked again next time: {escape_unprintable(str(error))}", err=True)


def ask_trust() -> bool:
    """Ask the question, and return whether the answer is yes. The end of input means no; Ctrl-C stops the command."""
    return ask_yes_or_no("Do you trust it?", _HELP)


def show_actions(file: Path, actions: Actions, verdict: Verdict) -> None:
    """Print what a file would do to standard error: all of it, and what has changed since the user agreed."""
    path = record_path(file)
    if verdict.state == "changed":
        _print(f"{path} has changed since you trusted it. What is new:", bold=True)
        for change in verdict.changes:
            _print_change(change)
        _print("\nAll of it:", bold=True)
    else:
        _print(f"{path} was not used here before. If you trust it, it", bold=True)
    for line in action_lines(actions.actions):
        _print(line)
    _print(f"\nTrust digest: {actions.digest}", dim=True)
    print_not_covered(actions)


def print_not_covered(actions: Actions) -> None:
    """Print a notice to standard error about files that the trust digest does not cover, if there are any."""
    if actions.not_covered:
        _print(describe_not_covered(actions.not_covered), fg="yellow")


def action_lines(actions: Sequence[Action]) -> Iterator[str]:
    """Yield the lines that show the actions, under a heading for each kind."""
    for kind, heading in _HEADINGS.items():
        listed = [action for action in actions if action.kind == kind]
        if listed:
            yield f"\n  {heading}"
        for action in listed:
            yield from _lines_of(action)


def _lines_of(action: Action) -> Iterator[str]:
    """Yield one line with the detail that matters most, and one for each other detail."""
    first, *others = action.details or (("", ""),)
    label, text = first
    yield f"    {action.name}" + (f": {_short(label, text)}" if text else "")
    for label, text in others:
        if (label, text) != ("folder", ".") and label != "path":
            yield f"        {label}: {_short(label, text)}"


def _print_change(change: Change) -> None:
    action, before = change.action, change.before
    if before is None:
        for line in action_lines([action]):
            _print(f"+ {line}" if not line.startswith("\n") else line, fg="green")
        return
    _print(f"\n  {_HEADINGS[action.kind]}")
    _print(f"    {action.name}")
    for label, text in before.details:
        if (label, text) not in action.details:
            _print(f"      - {label}: {_short(label, text)}", fg="red")
    for label, text in action.details:
        if (label, text) not in before.details:
            _print(f"      + {label}: {_short(label, text)}", fg="green")


def _short(label: str, text: str) -> str:
    if label == NOT_COVERED:
        return f"{int(text):,} more, not covered"
    return f"{text[:_SHORT_HASH]}..." if label == "sha256" else text.replace("\n", "\\n")


def _print(text: str, **style: Any) -> None:
    click.secho(escape_unprintable(text), err=True, **style)


def _refusal(file: Path, actions: Actions, verdict: Verdict) -> ConfigError:
    if verdict.state == "new":
        message = "this file is not trusted on this machine, so nothing was started"
    else:
        names = ", ".join(sorted({change.action.name for change in verdict.changes}))
        message = f"this file has changed since you trusted it, so nothing was started; what is new: {names}"
    fix = (
        f"At a terminal, 'holodeck trust {shlex.quote(str(file))}' shows what it would do and asks. "
        f"Elsewhere, use --trust, or set HOLODECK_TRUST={actions.digest}"
    )
    return ConfigError.of([Problem(message=message, file=str(file), fix=fix)])
