"""Report files: the format by the end of the name, and the file itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.output.events_json import json_text
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import SuiteReport


def check_report_path(path: Path) -> None:
    """Raise `click.UsageError` for a report that cannot be written: it is found before the cases run."""
    shown = escape_unprintable(str(path))
    if path.suffix.lower() not in _WRITERS:
        raise click.UsageError(f"--report {shown}: the name must end in one of {', '.join(_WRITERS)}.")
    if not path.parent.is_dir():
        raise click.UsageError(f"--report {shown}: there is no folder {escape_unprintable(str(path.parent))}.")


def write_report_file(path: Path, report: SuiteReport) -> None:
    """Write the report in the format that the name ends in. Raises `ExecutionError`."""
    text = _WRITERS[path.suffix.lower()](report)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ExecutionError(f"Cannot write the report {escape_unprintable(str(path))}: {error.strerror}.") from None


def write_json(report: SuiteReport) -> str:
    """Return the report as JSON, without a line break at its end."""
    from holodeck.cli.commands.test.reports.report_data import build_report_data

    return json_text(build_report_data(report), indent=2)


def _write_json_file(report: SuiteReport) -> str:
    return write_json(report) + "\n"


def _write_xml(report: SuiteReport) -> str:
    from holodeck.cli.commands.test.reports.junit_xml import write_junit_xml

    return write_junit_xml(report)


def _write_markdown(report: SuiteReport) -> str:
    from holodeck.cli.commands.test.reports.markdown import write_markdown

    return write_markdown(report)


def _write_html(report: SuiteReport) -> str:
    from holodeck.cli.commands.test.reports.html_page import write_html

    return write_html(report)


_WRITERS: dict[str, Callable[[SuiteReport], str]] = {
    ".xml": _write_xml,
    ".json": _write_json_file,
    ".md": _write_markdown,
    ".html": _write_html,
}
