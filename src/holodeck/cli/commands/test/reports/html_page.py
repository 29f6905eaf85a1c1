"""A report as one page for a browser.

The page has no script and requests nothing, which its content security policy states: the only thing that it allows is
the style sheet of the page itself, by its hash. So there are no `style` attributes here. Every text of models, tools
and files goes through `escape`, also inside attributes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holodeck.cli.commands.test.reports.html_markup import escape
from holodeck.cli.commands.test.reports.html_plot import draw_interval, draw_plot
from holodeck.cli.commands.test.reports.html_style import STYLE
from holodeck.cli.commands.test.reports.html_transcript import show_case
from holodeck.cli.commands.test.verdict_lines import format_cost, format_counts, format_rate, format_seconds
from holodeck.cli.output.run_lines import format_duration

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import SuiteReport, SuiteResult


def write_html(report: SuiteReport) -> str:
    """Return the page."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{'Passed' if report.has_passed else 'Failed'}: {format_counts(report)}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *_show_head(report),
            "<main>",
            *_show_models(report),
            *_show_plots(report),
            *(line for suite in report.suites for line in _show_suite(suite, report.repeat)),
            "</main>",
            "</body>",
            "</html>\n",
        ]
    )


def _show_head(report: SuiteReport) -> Iterator[str]:
    outcome = "passed" if report.has_passed else "failed"
    started = report.started_at.strftime("%Y-%m-%d %H:%M UTC")
    yield '<header class="page-head">'
    yield "<h1>Test cases</h1>"
    yield f'<p class="headline {outcome}">{escape(format_counts(report)).replace(" %", "&nbsp;%")}</p>'
    yield f'<p class="muted">{started}, {escape(format_duration(report.seconds))}</p>'
    if not report.is_complete:
        ended = f"{len(report.verdicts)} of {report.planned} runs had ended."
        yield f'<p class="notice">This report is not complete: the command was stopped when {ended}</p>'
    yield "</header>"


def _show_models(report: SuiteReport) -> Iterator[str]:
    yield '<section><h2>Models</h2><div class="scroll"><table><thead><tr>'
    yield '<th>Model</th><th class="number">Passed</th><th>Pass rate, 95 % interval</th>'
    yield '<th class="number">Tokens</th><th class="number">Cost</th><th class="number">Median time</th>'
    yield "</tr></thead><tbody>"
    for model, figures in report.figures_by_model.items():
        rate = figures.pass_rate
        yield f'<tr><th scope="row">{escape(model)}</th>'
        yield f'<td class="number" data-label="Passed">{rate.passed}/{rate.total}</td>'
        yield f'<td class="rate">{draw_interval(rate)}<span>{escape(format_rate(rate))}</span></td>'
        yield f'<td class="number" data-label="Tokens">{figures.tokens:,}</td>'
        yield f'<td class="number" data-label="Cost">{escape(format_cost(figures.cost))}</td>'
        yield f'<td class="number" data-label="Median time">{escape(format_seconds(figures.median_seconds))}</td></tr>'
    yield "</tbody></table></div>"
    judge_cost = report.figures.judge_cost
    if judge_cost != 0:
        cost = "is not known: a price is missing" if judge_cost is None else f"is {format_cost(judge_cost)}"
        yield f'<p class="muted">The cost of the judges {escape(cost)}. It is no part of the costs above.</p>'
    yield "</section>"


def _show_plots(report: SuiteReport) -> Iterator[str]:
    suites: dict[str, list[SuiteResult]] = {}
    for suite in report.suites:
        suites.setdefault(suite.suite.model, []).append(suite)
    has_files = len({suite.suite.file for suite in report.suites}) > 1
    everything = [case.figures for suite in report.suites for case in suite.cases]
    for model, of_model in suites.items():
        rows = [
            (case.name, suite.suite.file if has_files else "", case.figures)
            for suite in of_model
            for case in suite.cases
        ]
        yield f"<section><h2>Cases on {escape(model)}</h2>"
        yield from draw_plot(rows, everything)
        yield "</section>"


def _show_suite(result: SuiteResult, repeat: int) -> Iterator[str]:
    suite = result.suite
    yield f"<section><h2>{escape(suite.loaded.agent.name)} on {escape(suite.model)}</h2>"
    yield f'<p class="muted">{escape(suite.file)}</p>'
    for case in result.cases:
        yield from show_case(case, repeat)
    yield "</section>"
