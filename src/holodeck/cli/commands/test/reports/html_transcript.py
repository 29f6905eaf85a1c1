"""The runs of a case on the page: the question, what the model and the tools said, and the checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holodeck.cli.commands.test.reports.html_markup import escape
from holodeck.cli.commands.test.verdict_lines import describe_check, format_cost, format_rate
from holodeck.cli.output.run_lines import output_text, run_summary_line
from holodeck.lib.json.parse import parse_json
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Item, Message, Reasoning

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import CaseResult
    from holodeck.evaluation.verdict import Verdict

# Characters of one text of a transcript: a page with more of each is slow to open. The JSON report has all of them.
MAX_TEXT_SHOWN = 20_000


def show_case(result: CaseResult, repeat: int) -> Iterator[str]:
    """Yield a block that opens for a case, with a block for each run where there are several."""
    rate = result.figures.pass_rate
    outcome = "none" if not rate.total else "passed" if not rate.failed else "failed"
    about = f"{rate.passed}/{rate.total}, {format_rate(rate)}" if repeat > 1 else ""
    yield f'<details class="case"><summary>{_badge(outcome)}<span class="name">{escape(result.name)}</span>'
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
    cost = "not known" if verdict.cost is None else format_cost(verdict.cost)
    return f"{run_summary_line(verdict.result)}; cost {cost}"


def _indent_json(text: str) -> str:
    try:
        value: Any = parse_json(text)
    # The model may have written anything.
    except (ValueError, RecursionError):
        return text
    return json.dumps(value, ensure_ascii=False, indent=2)
