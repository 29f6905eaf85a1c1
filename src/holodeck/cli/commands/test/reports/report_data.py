"""A report as data, for `--json` and `.json` files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holodeck.cli.commands.test.case_cassette import build_cassette_data
from holodeck.cli.output.events_json import to_plain_data

if TYPE_CHECKING:
    from holodeck.evaluation.pass_rate import PassRate
    from holodeck.evaluation.suite_report import CaseResult, Figures, SuiteReport, SuiteResult
    from holodeck.evaluation.verdict import Verdict


def build_report_data(report: SuiteReport) -> dict[str, Any]:
    """Return everything about the suites, their cases and each run."""
    return {
        "has_passed": report.has_passed,
        "passed": report.figures.pass_rate.passed,
        "failed": report.figures.pass_rate.failed,
        "is_complete": report.is_complete,
        "planned": report.planned,
        "repeat": report.repeat,
        "fail_under": report.fail_under,
        "started_at": report.started_at.isoformat(timespec="seconds"),
        "seconds": report.seconds,
        "figures": _figures_data(report.figures),
        "models": [{"model": model, **_figures_data(each)} for model, each in report.figures_by_model.items()],
        "suites": [_suite_data(suite) for suite in report.suites],
    }


def _suite_data(result: SuiteResult) -> dict[str, Any]:
    suite = result.suite
    return {
        "agent": suite.loaded.agent.name,
        "file": suite.file,
        "model": suite.model,
        "cassette": None if suite.cassette is None else build_cassette_data(suite.cassette),
        "figures": _figures_data(result.figures),
        "cases": [_case_data(case) for case in result.cases],
    }


def _case_data(result: CaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "name": result.name,
        "input": case.input,
        "ground_truth": case.ground_truth,
        "expected_tools": [each if isinstance(each, str) else each.model_dump() for each in case.expected_tools],
        "figures": _figures_data(result.figures),
        "runs": [_run_data(verdict) for verdict in result.verdicts],
    }


def _run_data(verdict: Verdict) -> dict[str, Any]:
    result = verdict.result
    return {
        "outcome": "passed" if verdict.passed else "failed",
        "passed": verdict.passed,
        "reasons": list(verdict.reasons),
        "checks": to_plain_data(verdict.checks),
        "answer": result.text,
        "called": [
            {
                "server": call.server or None,
                "tool": call.tool,
                "name": call.name,
                "arguments": to_plain_data(call.arguments),
                "is_error": call.call_id in verdict.failed_call_ids,
            }
            for call in verdict.calls
        ],
        "status": result.status,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "usage": to_plain_data(result.usage),
        "seconds": result.seconds,
        "cost": verdict.cost,
        "judge_cost": verdict.judge_cost,
        "transcript": to_plain_data(verdict.transcript),
    }


def _figures_data(figures: Figures) -> dict[str, Any]:
    return {
        "pass_rate": _rate_data(figures.pass_rate),
        "tokens": figures.tokens,
        "cost": figures.cost,
        "judge_cost": figures.judge_cost,
        "median_seconds": figures.median_seconds,
    }


def _rate_data(rate: PassRate) -> dict[str, Any]:
    low, high = rate.interval
    return {"passed": rate.passed, "total": rate.total, "rate": rate.rate, "low": low, "high": high}
