"""A question at the terminal whose answer is yes or no, before a command does something. The default is no."""

from __future__ import annotations

import sys

import click

from holodeck.cli.output.stdin import discard_typed_ahead, is_terminal


def can_ask() -> bool:
    """Return whether a person can read a question and answer it."""
    return is_terminal() and sys.stderr is not None and sys.stderr.isatty()


def ask_yes_or_no(question: str, explanation: str) -> bool:
    """Ask on standard error, and return whether the answer is yes. The end of input means no; Ctrl-C stops the command.

    `explanation`: lines that `?` shows.
    """
    # What was typed before the question is no answer to it.
    discard_typed_ahead()
    while True:
        click.echo(f"{question} [y/N] (? for help) ", nl=False, err=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if word in {"y", "yes"}:
            return True
        if word in {"", "n", "no"}:
            if not line:
                click.echo(err=True)
            return False
        click.echo(explanation if word == "?" else "  Please answer y or n.", nl=word != "?", err=True)
