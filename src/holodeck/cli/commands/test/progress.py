"""What a user sees of suites that run: a line for each case that has ended, and what runs now.

On a terminal, the progress line on stderr has the counts and the names of the cases that run. Elsewhere the lines of
cases are all there is: on stdout, or with `--json` shorter ones on stderr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.agent_runner import AgentRunner
from holodeck.cli.commands.test.verdict_lines import print_verdict
from holodeck.cli.output.follow_run import unstarted_servers
from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    failure_line,
    run_summary_line,
)
from holodeck.cli.output.terminal import Terminal
from holodeck.models.events import Event, RunFinished, RunStarted, ToolFinished, ToolStarted

if TYPE_CHECKING:
    from holodeck.evaluation.suite import CaseRun, Suite
    from holodeck.evaluation.verdict import Verdict

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
