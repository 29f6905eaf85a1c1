"""A report as one page for a browser.

The page has no script and requests nothing, which its content security policy states: the only thing that it allows is
the style sheet of the page itself, by its hash. So there are no `style` attributes here. Every text of models, tools
and files goes through `escape`, also inside attributes.

The plots are inline SVG: the pass rate of each case with its interval, and bars for tokens and seconds. All their
lengths are percentages, so that a plot has the width of its place while its marks and strokes keep their size. The
style sheet is light or dark by the settings of the reader.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holodeck.cli.commands.test.verdict_lines import (
    describe_check,
    format_cost,
    format_counts,
    format_rate,
    format_seconds,
)
from holodeck.cli.output.run_lines import format_duration, output_text, run_summary_line
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.json.parse import parse_json
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Item, Message, Reasoning

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import CaseResult, Figures, PassRate, SuiteReport, SuiteResult
    from holodeck.evaluation.verdict import Verdict


def escape(text: str) -> str:
    """Return the text as HTML, for elements and for attributes in double quotes. Invisible characters become codes."""
    return html.escape(escape_unprintable(text), quote=True)


STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --surface: #ffffff; --sunken: #f0f2f5; --text: #1c2330; --muted: #5c6675; --line: #d9dee6;
  --accent: #3b62d8; --good: #1a7f4b; --bad: #c0342b; --mixed: #a86200; --good-soft: #e2f4ea; --bad-soft: #fce8e6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --surface: #1a1f28; --sunken: #141920; --text: #e4e8ef; --muted: #98a2b3; --line: #303845;
    --accent: #86a4ff; --good: #58c98c; --bad: #ff8b80; --mixed: #e6ac4d; --good-soft: #17352a; --bad-soft: #43211f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
}
.page-head, main { max-width: 70rem; margin: 0 auto; padding: 0 1.25rem; }
.page-head { padding-top: 2rem; }
main { padding-bottom: 4rem; }
h1 { font-size: 1.05rem; font-weight: 600; margin: 0; color: var(--muted); }
h2 { font-size: 1.1rem; margin: 0 0 0.75rem; overflow-wrap: anywhere; }
h4 { font-size: 0.8rem; margin: 0 0 0.25rem; color: var(--muted); font-weight: 600; overflow-wrap: anywhere; }
p { margin: 0 0 0.75rem; overflow-wrap: anywhere; }
.headline { font-size: 1.7rem; font-weight: 650; line-height: 1.25; margin: 0.15rem 0; }
.headline.passed { color: var(--good); }
.headline.failed { color: var(--bad); }
.muted { color: var(--muted); }
.notice { border-left: 3px solid var(--mixed); padding-left: 0.75rem; }
section {
  background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.25rem;
  margin-top: 1.25rem;
}
section > :last-child { margin-bottom: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 0.45rem 1rem 0.45rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--muted); font-size: 0.8rem; white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
tbody th { font-weight: 600; overflow-wrap: anywhere; min-width: 7rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
.rate { min-width: 15rem; }
.rate span { font-size: 0.8rem; color: var(--muted); }
small { font-size: 0.8rem; color: var(--muted); font-variant-numeric: tabular-nums; }
.plot { display: block; width: 100%; overflow: visible; --mark: var(--muted); }
.rate .plot, .cases .plot:not(.bar) { width: calc(100% - 10px); margin: 0 5px; }
.plot.passed { --mark: var(--good); }
.plot.failed { --mark: var(--bad); }
.plot.mixed { --mark: var(--mixed); }
.plot .track { stroke: var(--line); stroke-width: 2; }
.plot .interval { stroke: var(--mark); stroke-width: 6; stroke-linecap: round; opacity: 0.35; }
.plot circle { fill: var(--mark); }
.plot.bar { background: var(--sunken); border-radius: 2px; margin: 5px 0; }
.plot.bar rect { fill: var(--accent); }
.row {
  display: grid; grid-template-columns: minmax(8rem, 2fr) minmax(10rem, 3fr) minmax(5rem, 1fr) minmax(5rem, 1fr);
  gap: 0 1.5rem; align-items: center; padding: 0.4rem 0; border-top: 1px solid var(--line);
}
.row.head { border-top: 0; color: var(--muted); font-size: 0.8rem; padding-top: 0; }
.row .name { overflow-wrap: anywhere; }
.row .name small { display: block; }
.row .label { display: none; }
details { border-top: 1px solid var(--line); }
details.run { border: 1px solid var(--line); border-radius: 8px; margin: 0.5rem 0; padding: 0 0.75rem; }
summary { display: flex; gap: 0.75rem; align-items: baseline; padding: 0.55rem 0; cursor: pointer; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "+"; color: var(--muted); font-family: ui-monospace, monospace; }
details[open] > summary::before { content: "-"; }
summary .name { overflow-wrap: anywhere; font-weight: 550; }
summary .muted { margin-left: auto; font-size: 0.8rem; text-align: right; overflow-wrap: anywhere; }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
.body { padding: 0.25rem 0 1rem; }
.badge {
  flex: none; display: inline-block; min-width: 2.6rem; text-align: center; font-size: 0.75rem; font-weight: 650;
  border-radius: 5px; padding: 0.05rem 0.4rem; background: var(--sunken); color: var(--muted);
}
.badge.passed { background: var(--good-soft); color: var(--good); }
.badge.failed { background: var(--bad-soft); color: var(--bad); }
.checks { list-style: none; padding: 0; margin: 0 0 1rem; }
.checks li { display: flex; gap: 0.6rem; align-items: baseline; padding: 0.15rem 0; }
.checks span:last-child { overflow-wrap: anywhere; min-width: 0; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
.item { border-left: 3px solid var(--line); padding-left: 0.75rem; margin: 0 0 0.75rem; }
.item.user { border-color: var(--accent); }
.item.assistant { border-color: var(--good); }
.item.error { border-color: var(--bad); }
.item.expected { border-left-style: dashed; }
pre {
  margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 28rem; overflow-y: auto;
  background: var(--sunken); border-radius: 6px; padding: 0.5rem 0.7rem;
}
@media (max-width: 42rem) {
  .page-head, main { padding-left: 0.75rem; padding-right: 0.75rem; }
  section { padding: 0.9rem; }
  .headline { font-size: 1.35rem; }
  .row.head, thead { display: none; }
  tbody tr { display: grid; grid-template-columns: repeat(4, auto); gap: 0.25rem 1rem; padding: 0.5rem 0; }
  tbody tr + tr { border-top: 1px solid var(--line); }
  tbody th, tbody td { border: 0; padding: 0; min-width: 0; }
  tbody th, tbody .rate { grid-column: 1 / -1; }
  tbody .rate { order: -1; }
  tbody th { order: -2; }
  tbody .number { text-align: left; }
  [data-label]::before { content: attr(data-label); display: block; color: var(--muted); font-size: 0.8rem; }
  .row { grid-template-columns: 1fr 1fr; gap: 0.25rem 1rem; padding: 0.7rem 0; }
  .row .name, .row .name + span { grid-column: 1 / -1; }
  .row .name { font-weight: 550; }
  .row .label { display: inline; }
  summary { flex-wrap: wrap; gap: 0.25rem 0.6rem; }
  summary .name { flex: 1; }
  summary .muted { margin-left: 0; width: 100%; text-align: left; }
  .checks li { flex-wrap: wrap; gap: 0 0.6rem; }
  .checks span:last-child { width: 100%; }
}
@media print { body { background: none; } section { break-inside: avoid; } }
"""


def draw_interval(rate: PassRate) -> str:
    """Return a line from 0 to 100 %, with a mark at the rate and the interval around it."""
    low, high = rate.interval
    kind = "none" if not rate.total else "passed" if not rate.failed else "failed" if not rate.passed else "mixed"
    marks = (
        f'<line class="interval" x1="{low:.2%}" x2="{high:.2%}" y1="9" y2="9"/>'
        f'<circle cx="{rate.rate:.2%}" cy="9" r="5"/>'
        if rate.total
        else ""
    )
    return (
        f'<svg class="plot {kind}" height="18" role="img" aria-label="{escape(f"pass rate {format_rate(rate)}")}">'
        f'<line class="track" x1="0%" x2="100%" y1="9" y2="9"/>{marks}</svg>'
    )


def draw_bar(share: float) -> str:
    """Return a bar of this share of the width. The number beside it says what it is."""
    return f'<svg class="plot bar" height="8" aria-hidden="true"><rect width="{share:.2%}" height="8" rx="2"/></svg>'


def draw_plot(rows: Sequence[tuple[str, str, Figures]], compared: Sequence[Figures]) -> Iterator[str]:
    """Yield a row for each case: its name, its file, its figures. `compared`: all that have the same scale."""
    most_tokens = max((each.tokens for each in compared), default=0)
    most_seconds = max((each.median_seconds or 0.0 for each in compared), default=0.0)
    yield '<div class="cases" role="table" aria-label="Cases"><div class="row head" role="row">'
    for label in ("Case", "Pass rate, 95 % interval", "Tokens", "Median time"):
        yield f'<span role="columnheader">{escape(label)}</span>'
    yield "</div>"
    for name, file, figures in rows:
        rate, seconds = figures.pass_rate, figures.median_seconds
        note = f'<small class="muted">{escape(file)}</small>' if file else ""
        yield f'<div class="row" role="row"><span class="name" role="cell">{escape(name)}{note}</span>'
        yield f'<span role="cell">{draw_interval(rate)}'
        yield f"<small>{rate.passed}/{rate.total}, {format_rate(rate)}</small></span>"
        yield f'<span role="cell">{draw_bar(figures.tokens / most_tokens if most_tokens else 0.0)}'
        yield f'<small><span class="label">Tokens </span>{figures.tokens:,}</small></span>'
        yield f'<span role="cell">{draw_bar((seconds or 0.0) / most_seconds if most_seconds else 0.0)}'
        yield f'<small><span class="label">Median time </span>{escape(format_seconds(seconds))}</small></span></div>'
    yield "</div>"


# Characters of one text of a transcript: a page with more of each is slow to open. The JSON report has all of them.
MAX_TEXT_SHOWN = 20_000


def show_case(result: CaseResult, repeat: int) -> Iterator[str]:
    """Yield a block that opens for a case, with a block for each run where there are several. What failed is open."""
    rate = result.figures.pass_rate
    outcome = "none" if not rate.total else "passed" if not rate.failed else "failed"
    about = f"{rate.passed}/{rate.total}, {format_rate(rate)}" if repeat > 1 else ""
    is_open = " open" if outcome == "failed" else ""
    yield f'<details class="case"{is_open}><summary>{_badge(outcome)}<span class="name">{escape(result.name)}</span>'
    yield f'<span class="muted">{escape(about)}</span></summary><div class="body">'
    if not result.verdicts:
        yield '<p class="muted">No run of this case has ended.</p>'
    for number, verdict in enumerate(result.verdicts, start=1):
        if repeat > 1:
            is_passed = "passed" if verdict.passed else "failed"
            yield f'<details class="run"><summary>{_badge(is_passed)}<span class="name">Run {number}</span>'
            yield f'<span class="muted">{escape(_first_reason(verdict))}</span></summary><div class="body">'
            yield from _show_run(verdict)
            yield "</div></details>"
        else:
            yield from _show_run(verdict)
    yield "</div></details>"


def _show_run(verdict: Verdict) -> Iterator[str]:
    yield '<ul class="checks">'
    for check in verdict.checks:
        outcome = "passed" if check.passed else "failed"
        yield f"<li>{_badge(outcome)}<code>{escape(check.name)}</code>"
        yield f"<span>{escape(describe_check(check))}</span></li>"
    yield "</ul>"
    truth = verdict.case.ground_truth
    if truth:
        yield from _show_block("expected", "Ground truth", truth)
    servers = {call.call_id: str(call).partition("(")[0] for call in verdict.calls}
    for item in verdict.transcript:
        yield from _show_item(item, servers)
    yield f'<p class="muted">{escape(_describe_run(verdict))}</p>'


def _show_item(item: Item, names: dict[str, str]) -> Iterator[str]:
    match item:
        case Message(role="user"):
            yield from _show_block("user", "Question", item.text)
        case Message(role=role):
            yield from _show_block("assistant", "Model" if role == "assistant" else str(role), item.text)
        case FunctionCall(call_id=call_id, name=name, arguments=arguments):
            yield from _show_block("call", f"Call of {names.get(call_id, name)}", _indent_json(arguments))
        case FunctionCallOutput(call_id=call_id, is_error=is_error):
            label = f"{'Error' if is_error else 'Result'} of {names.get(call_id, call_id)}"
            yield from _show_block("error" if is_error else "result", label, output_text(item))
        case Reasoning(text=text, summary=summary):
            if text or summary:
                yield from _show_block("reasoning", "Reasoning", text or summary)
        case Compaction():
            yield from _show_block("reasoning", "Compaction", "Earlier items were summarized.")


def _show_block(kind: str, label: str, text: str) -> Iterator[str]:
    hidden = len(text) - MAX_TEXT_SHOWN
    shown = text[:MAX_TEXT_SHOWN] + (f"\n... and {hidden:,} more characters" if hidden > 0 else "")
    yield f'<div class="item {kind}"><h4>{escape(label)}</h4><pre>{escape(shown) or "(nothing)"}</pre></div>'


def _badge(outcome: str) -> str:
    word = {"passed": "pass", "failed": "fail", "none": "not run"}[outcome]
    return f'<span class="badge {outcome}">{word}</span>'


def _first_reason(verdict: Verdict) -> str:
    return verdict.reasons[0] if verdict.reasons else ""


def _describe_run(verdict: Verdict) -> str:
    return run_summary_line(verdict.result) + ("; cost not known" if verdict.cost is None else "")


def _indent_json(text: str) -> str:
    try:
        value: Any = parse_json(text)
    # The model may have written anything.
    except (ValueError, RecursionError):
        return text
    return json.dumps(value, ensure_ascii=False, indent=2)


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
