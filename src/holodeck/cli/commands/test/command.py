"""`holodeck test`: run the test cases of agents, each in a conversation of its own, and report why one failed.

The results are lines and tables on a terminal, data with `--json`, and files with `--report`. Ctrl-C ends the cases
that run, closes their servers, and shows and writes what is known until then.

A user sees a line for each case that has ended. On a terminal, the progress line on stderr has the counts and the names
of the cases that run. With `--json` the lines are shorter, and on stderr.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.agent_runner import AgentRunner
from holodeck.cli.commands.test.reports.report_file import check_report_path, write_json, write_report_file
from holodeck.cli.commands.test.suites import CassetteOptions, find_agent_files, finish_cassette, read_suites
from holodeck.cli.commands.test.verdict_lines import print_summary, print_verdict
from holodeck.cli.dev.file_watcher import FileWatcher, WatchedPath
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.main import json_option
from holodeck.cli.output.ask_user import build_people
from holodeck.cli.output.config_problems import print_problems
from holodeck.cli.output.follow_run import unstarted_servers
from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    failure_line,
    run_summary_line,
)
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.output.trust_question import trust_option
from holodeck.cli.terminal_agent import open_screen
from holodeck.config.files import record_paths
from holodeck.lib.errors import ConfigError
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.models.events import Event, RunFinished, RunStarted, ToolFinished, ToolStarted
from holodeck.runtime import build_runner

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.evaluation.suite_report import CaseRun, Suite, SuiteReport
    from holodeck.evaluation.verdict import Verdict


class FileChanges:
    """Notices changes of files from `begin` on, also of those that are not there yet."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._watcher = FileWatcher([WatchedPath(path=path) for path in paths], self._on_change)
        self._changed: Sequence[Path] = ()

    async def begin(self) -> None:
        await self._watcher.scan_first()

    async def wait(self) -> Sequence[Path]:
        """Wait until files have changed, and return them."""
        self._is_changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watcher.run())
            await self._is_changed.wait()
            watching.cancel()
        return self._changed

    def _on_change(self, changed: Sequence[Path]) -> None:
        self._changed = changed
        self._is_changed.set()


# Cases that the progress line names.
_MAX_NAMED_CASES = 4


class SuiteProgress:
    """Collects the verdicts of cases in `finished`, and shows what happens."""

    def __init__(
        self, terminal: Terminal, suites: Sequence[Suite], *, repeat: int, jobs: int, prints_verdicts: bool
    ) -> None:
        self.finished: list[tuple[CaseRun, Verdict]] = []
        self.total = repeat * sum(len(suite.cases) for suite in suites)
        self._terminal = terminal
        self._running: list[CaseRun] = []
        self._repeat = repeat
        self._shows_names = jobs > 1
        self._prints_verdicts = prints_verdicts
        self._has_models = len({suite.model for suite in suites}) > 1
        self._has_files = len({suite.file for suite in suites}) > 1

    def on_case_started(self, run: CaseRun) -> None:
        self._running.append(run)
        if self.finished or len(self._running) > 1:
            self._update()
        else:
            self._terminal.show_waiting(self._describe())

    def on_event(self, run: CaseRun, agent: AgentRunner, event: Event) -> None:
        """Print a line about an event, with the name of its case where several run."""
        if self._terminal.is_quiet:
            return
        lines: list[tuple[str, str | None]] = []
        match event:
            case RunStarted(model=model):
                lines.append((f"{agent.name} asks {model}", None))
                if starting := unstarted_servers(agent):
                    lines.append((f"Starting {', '.join(starting)}", None))
            case ToolStarted(name=name, arguments=arguments):
                lines.append((call_started_line(call_title(agent, name), arguments), "cyan"))
            case ToolFinished():
                lines.append(call_finished_line(agent, event))
            case RunFinished(result=result):
                if (failure := failure_line(result)) is not None:
                    lines.append(failure)
                lines.append((run_summary_line(result), None))
            case _:
                pass
        prefix = f"[{self.describe_run(run)}] " if self._shows_names else ""
        for line, colour in lines:
            self._terminal.note(f"{prefix}{line}", **({"dim": True} if colour is None else {"fg": colour}))

    def on_difference(self, run: CaseRun, text: str) -> None:
        """Print how a run differs from its cassette."""
        self._terminal.note(text, always=True, fg="red")

    def on_case_finished(self, run: CaseRun, verdict: Verdict) -> None:
        self._running.remove(run)
        self.finished.append((run, verdict))
        self._update()
        title = self.describe_run(run)
        if self._prints_verdicts:
            print_verdict(title, verdict, self._terminal.print_line)
        else:
            word, colour = ("PASS", "green") if verdict.passed else ("FAIL", "red")
            self._terminal.note(f"{len(self.finished)}/{self.total} {word}  {title}", fg=colour)

    def describe_run(self, run: CaseRun) -> str:
        """Return the name of the case, with what distinguishes this run from others."""
        model = f" [{run.suite.model}]" if self._has_models else ""
        number = f" ({run.repetition} of {self._repeat})" if self._repeat > 1 else ""
        file = f" - {run.suite.file}" if self._has_files else ""
        return f"{run.name}{model}{number}{file}"

    def _update(self) -> None:
        self._terminal.update_waiting(self._describe())

    def _describe(self) -> str:
        passed = sum(verdict.passed for _, verdict in self.finished)
        counts = f"{len(self.finished)}/{self.total} done, {passed} passed, {len(self.finished) - passed} failed"
        names = [run.name for run in self._running]
        if not names:
            return f"{counts}; ending the servers" if len(self.finished) == self.total else counts
        hidden = len(names) - _MAX_NAMED_CASES
        more = f" and {hidden} more" if hidden > 0 else ""
        return f"{counts}; running: {', '.join(names[:_MAX_NAMED_CASES])}{more}"


# Each job starts the MCP servers of its agent: more of them are a load for the machine, and for the model's limits.
MAX_JOBS = 16
MAX_REPEAT = 1_000

_EPILOG = f"""\b
Examples:
  holodeck test
  holodeck test team/agent.yaml agents/ -k weather
  holodeck test --repeat 10 --fail-under 0.9 --jobs 4
  holodeck test --model openai:gpt-5-mini --model anthropic:claude-sonnet-4-5
  holodeck test --report report.html --report junit.xml
  holodeck test --watch
  holodeck test --record

\b
In agent.yaml:
  test_cases:
    - name: adds
      input: What is 1 + 2?
      expected_tools: [calc.add]
      ground_truth: "3"
      contains: [sum, "1 + 2"]
      forbidden: {{texts: [I think], tools: [delete]}}
      max_turns: 3

\b
Other keys of a case: equals, matches, json, similar, judge, tools, max_tokens, max_seconds.
A ground_truth is judged by the measure that suits its form, or by that of ground_truth_by.
A tool may be named by its server, in full (server.tool or server__tool), or by its own name.
In a folder, every .yaml or .yml file with 'test_cases:' at the beginning of a line is run, agent.yaml first.
Each job has an agent of its own, so that the MCP servers of a file are started once per job (at most {MAX_JOBS}).
With --record, agent.cassette.yaml has what the model and the servers said; --replay runs the cases from it, and so
does CI, where the variable CI is set. A cassette has one run of each case, so that there is no --repeat and no --model.
Exit codes: 0 passed, 1 failed, 2 wrong configuration or usage, 130 stopped by Ctrl-C."""


@record
class _Options:
    """The options that the user chose, apart from the files."""

    models: tuple[str, ...]
    pattern: str
    repeat: int
    jobs: int
    fail_under: float | None
    reports: tuple[Path, ...]
    as_json: bool
    is_record: bool
    is_replay: bool
    is_trusted: bool

    @property
    def cassettes(self) -> CassetteOptions:
        return CassetteOptions(
            is_record=self.is_record,
            is_replay=self.is_replay,
            keeps_other_cases=bool(self.pattern),
            live_option="--repeat" if self.repeat > 1 else "--model" if self.models else "",
        )


@click.command("test", epilog=_EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[FILE|FOLDER]...")
@click.option("-k", "pattern", default="", help="Only cases whose name or input has this text (or matches this glob).")
@click.option(
    "--repeat",
    type=click.IntRange(1, MAX_REPEAT),
    default=1,
    metavar="N",
    help="Run each case N times, and show pass rates with their 95 % intervals.",
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Run on this model instead of the file's: provider:name, one of your models, or an entry of "
    "test_settings.models (repeatable: side by side).",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=1,
    metavar="N",
    help=f"Run N cases at the same time, 1 to {MAX_JOBS}. Each job starts the MCP servers of its agent.",
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 1),
    metavar="RATE",
    help="Pass if every model has at least this pass rate, such as 0.9 (default: every run must pass).",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also write a report: .html, .md, .json or .xml for JUnit (repeatable).",
)
@json_option("Print the report as JSON; progress goes to standard error.")
@click.option("--watch", is_flag=True, help="Run again when an agent file, or a file that it uses, changes.")
@click.option("--record", "is_record", is_flag=True, help="Record the model and the servers into a cassette.")
@click.option("--replay", "is_replay", is_flag=True, help="Replay the cassette: no model is asked, no server started.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show what happens while a case runs.")
@trust_option
def command(*, paths: tuple[str, ...], watch: bool, quiet: bool, **chosen: Any) -> int:
    """Run the test cases of the agents in files and folders (default: agent.yaml)."""
    options = _Options(**chosen)
    for path in options.reports:
        check_report_path(path)
    if len(set(options.models)) < len(options.models):
        raise click.UsageError("--model names a model twice. To run the cases again, use --repeat.")
    for one, other in (
        (("--watch", watch), ("--json", options.as_json)),
        (("--watch", watch), ("--record", options.is_record)),
        (("--record", options.is_record), ("--replay", options.is_replay)),
        # Cases that are recorded at the same time could change what another one finds.
        (("--record", options.is_record), ("--jobs", options.jobs > 1)),
    ):
        if one[1] and other[1]:
            raise click.UsageError(f"Use {one[0]} or {other[0]}, not both.")
    terminal = Terminal(is_quiet=quiet)
    # A test must not depend on whether a user is at the terminal.
    terminal.can_ask = False
    if watch:
        _watch(paths, options, terminal)
    return _run_suites(_read_suites(paths, options, terminal), options, terminal)


def _read_suites(paths: Sequence[str], options: _Options, terminal: Terminal) -> list[Suite]:
    files = find_agent_files(paths)
    return read_suites(
        files, options.models, options.pattern, options.cassettes, terminal, is_trusted=options.is_trusted
    )


def _run_suites(suites: Sequence[Suite], options: _Options, terminal: Terminal) -> int:
    """Run the cases, show and write the results, and return the exit code. Raises `click.Abort` after Ctrl-C."""
    from holodeck.evaluation.suite_report import SuiteReport, group_verdicts

    progress = SuiteProgress(
        terminal, suites, repeat=options.repeat, jobs=options.jobs, prints_verdicts=not options.as_json
    )
    started_at, began = datetime.now(UTC), time.monotonic()
    is_stopped = False
    try:
        run_interruptible(_run_cases(suites, options, terminal, progress))
    except KeyboardInterrupt:
        is_stopped = True
    if not is_stopped:
        for cassette in {id(suite.cassette): suite.cassette for suite in suites}.values():
            if cassette is not None:
                finish_cassette(cassette, terminal)
    report = SuiteReport(
        suites=group_verdicts(progress.finished, suites),
        planned=progress.total,
        repeat=options.repeat,
        fail_under=options.fail_under,
        started_at=started_at,
        seconds=time.monotonic() - began,
    )
    _show_report(report, options, terminal)
    if is_stopped:
        raise click.Abort
    return 0 if report.has_passed else 1


async def _run_cases(suites: Sequence[Suite], options: _Options, terminal: Terminal, progress: SuiteProgress) -> None:
    from holodeck.evaluation.suite_report import list_case_runs
    from holodeck.evaluation.suite_runner import run_cases

    people = build_people(terminal)

    def build_agent(suite: Suite) -> AgentRunner:
        return build_runner(suite.loaded, people=people)

    async with open_screen(terminal):
        await run_cases(
            list_case_runs(suites, options.repeat),
            jobs=options.jobs,
            build_agent=build_agent,
            listener=progress,
        )


def _show_report(report: SuiteReport, options: _Options, terminal: Terminal) -> None:
    if options.as_json:
        terminal.print_line(write_json(report))
    else:
        print_summary(report, terminal)
    for path in options.reports:
        write_report_file(path, report)


def _watch(paths: Sequence[str], options: _Options, terminal: Terminal) -> None:
    """Run the suites at once and after each change, until Ctrl-C. Wrong files are reported, and waited for."""
    while True:
        with record_paths() as used:
            suites = _read_or_report(paths, options, terminal)
        used |= {Path(path).absolute() for path in paths if not Path(path).is_dir()}
        used |= {suite.loaded.path.parent / code for suite in suites for code in suite.loaded.code}
        changes = FileChanges(sorted(used))
        run_interruptible(changes.begin())
        if suites:
            _run_suites(suites, options, terminal)
        terminal.note(f"\nWatching {len(used)} files. Ctrl-C ends.", dim=True)
        changed = run_interruptible(changes.wait())
        terminal.note(f"{', '.join(path.name for path in changed)} changed: running again.\n", bold=True)


def _read_or_report(paths: Sequence[str], options: _Options, terminal: Terminal) -> list[Suite]:
    try:
        return _read_suites(paths, options, terminal)
    except ConfigError as error:
        print_problems(error.problems)
    except click.UsageError as error:
        click.echo(f"Error: {escape_unprintable(error.format_message())}", err=True)
    return []
