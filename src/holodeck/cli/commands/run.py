"""`holodeck run`: one question and its answer. Only the answer is on stdout; the exit code is the status of the run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.attached_files import MAX_IMAGE_BYTES, attach_file, build_image, find_files, image_type
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.main import json_option
from holodeck.cli.output.follow_run import (
    EXIT_CODES,
    OutputFormat,
    open_screen_for,
    parse_output_format,
    plain_option,
    print_run,
    verbose_option,
)
from holodeck.cli.output.terminal import Screen, Terminal
from holodeck.cli.output.trust_question import trust_option
from holodeck.cli.terminal_agent import approve_option, model_option, open_agent, read_trusted_agent
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, LoadedAgent
from holodeck.lib.escape import replace_surrogates
from holodeck.lib.limits import MAX_MAX_TURNS, MAX_QUESTION_BYTES, MIB
from holodeck.lib.record import record
from holodeck.lib.system.files import read_regular_file
from holodeck.models.events import RunResult
from holodeck.models.items import ImageLink, Message, Part, TextContent
from holodeck.models.run_limits import RunLimits

if TYPE_CHECKING:
    from holodeck.cli.output.live_view import LiveScreen

_EPILOG = """\b
Examples:
  holodeck run "What is in the data folder?"
  holodeck run team/agent.yaml "What time is it in Oslo?" > answer.txt
  git diff | holodeck run - --quiet
  holodeck run "What does it show?" @chart.png
  holodeck run --approve 'files.write_*' "Tidy up the notes"
  holodeck run -m openai:gpt-5-mini "..."
  holodeck run --json "..." | jq .usage
  holodeck run --durable "Move all of them"     then, after a crash: holodeck runs resume --last

\b
Exit codes: 0 completed, 1 failed, 2 wrong configuration or usage, 3 incomplete (a limit was reached),
130 interrupted."""


@record
class _RunOptions:
    question: Message
    max_turns: int | None
    approved: tuple[str, ...]
    output: OutputFormat


@click.command("run", epilog=_EPILOG)
@click.argument("words", nargs=-1, metavar='[FILE] "QUESTION" [@ATTACHED]...')
@json_option("Print the result as JSON instead of the answer.")
@click.option("--events", "as_events", is_flag=True, help="Print each event as a JSON line, as it happens.")
@click.option("--image", "images", multiple=True, type=click.Path(path_type=Path), help="Attach an image (repeatable).")
@click.option("--max-turns", type=click.IntRange(1, MAX_MAX_TURNS), help="How many times the model may be asked.")
@click.option(
    "--durable", is_flag=True, help="Store each step: `holodeck runs resume` continues after Ctrl-C or a crash."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer and errors.")
@verbose_option
@model_option
@plain_option
@approve_option
@trust_option
def command(
    *,
    words: tuple[str, ...],
    as_json: bool,
    as_events: bool,
    images: tuple[Path, ...],
    max_turns: int | None,
    durable: bool,
    quiet: bool,
    is_verbose: bool,
    model: str | None,
    is_plain: bool,
    approved: tuple[str, ...],
    is_trusted: bool,
) -> int:
    """Ask the agent in FILE (default: agent.yaml) one QUESTION; `-` reads it from standard input.

    A word of its own that begins with @ is attached: an image, or a text file.
    """
    output = parse_output_format(as_json=as_json, as_events=as_events)
    attached = [word for word in words if _is_attached(word)]
    file, question = _file_and_question(tuple(word for word in words if word not in attached))
    screen = open_screen_for(output, is_plain=is_plain, is_quiet=quiet, is_verbose=is_verbose)
    loaded = read_trusted_agent(file, screen, is_trusted=is_trusted, model=model)
    parts: list[Part] = [image_part(path) for path in images]
    for word in attached:
        attachment = attach_file(word[1:])
        screen.note(attachment.summary, dim=True)
        parts += attachment.parts
    if question != "-":
        _warn_of_unattached(question, screen)
    options = _RunOptions(
        question=_build_message(question, parts), max_turns=max_turns, approved=approved, output=output
    )
    if durable:
        from holodeck.cli.durable_run import start_run

        return EXIT_CODES[start_run(loaded, options.question, options.max_turns, screen, output, approved).status]
    try:
        result = run_interruptible(_run_agent(loaded, options, screen))
    except KeyboardInterrupt:
        raise click.Abort from None
    return EXIT_CODES[result.status]


def _is_attached(word: str) -> bool:
    """Return whether a word is a file to attach: a question that begins with @ has spaces."""
    return len(word) > 1 and word.startswith("@") and (" " not in word or Path(word[1:]).is_file())


def _warn_of_unattached(question: str, screen: Screen) -> None:
    # The text of a question may come from elsewhere, so that a path in it attaches nothing by itself.
    for path in find_files(question):
        if Path(path).is_file():
            screen.note(f"{path} is not attached. Name it as a word of its own: @{path}", always=True, fg="yellow")


def _file_and_question(words: tuple[str, ...]) -> tuple[str, str]:
    match words:
        case (word,) if word.endswith((".yaml", ".yml")):
            raise click.UsageError(f'There is no question. Try: holodeck run {word} "What can you do?"')
        case (question,):
            return DEFAULT_AGENT_FILE, question
        case (file, question):
            return file, question
        case ():
            raise click.UsageError('There is no question. Try: holodeck run "What can you do?"')
        case _:
            raise click.UsageError("Too many words: put the question in quotes.")


def _build_message(question: str, parts: Sequence[Part]) -> Message:
    text = _read_stdin() if question == "-" else replace_surrogates(question)
    if not text.strip():
        raise click.UsageError("The question is empty.")
    return Message(role="user", content=(TextContent(text=text), *parts))


def _read_stdin() -> str:
    data = sys.stdin.buffer.read(MAX_QUESTION_BYTES + 1) if sys.stdin is not None else b""
    if len(data) > MAX_QUESTION_BYTES:
        raise click.UsageError(f"The question on standard input has more than {MAX_QUESTION_BYTES // MIB} MiB.")
    return data.decode("utf-8", "replace")


async def _run_agent(loaded: LoadedAgent, options: _RunOptions, screen: Terminal | LiveScreen) -> RunResult:
    async with open_agent(loaded, screen, options.approved) as (agent, _):
        events = agent.stream([options.question], limits=RunLimits(turns=options.max_turns))
        return await print_run(events, agent, screen, options.output)


def image_part(path: Path) -> ImageLink:
    """Read an image file as part of a question. Raises a usage error if it cannot be read or used."""
    try:
        data = read_regular_file(path, MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--image") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise click.BadParameter(
            f"{path} has more than {MAX_IMAGE_BYTES // MIB} MiB, which models do not take", param_hint="--image"
        )
    kind = image_type(data)
    if kind is None:
        raise click.BadParameter(f"{path} is not a PNG, JPEG, GIF or WebP image", param_hint="--image")
    return build_image(kind, data)
