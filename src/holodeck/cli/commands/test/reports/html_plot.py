"""Plots of the page, as inline SVG: the pass rate of each case with its interval, and bars for tokens and seconds.

All lengths are percentages, so that a plot has the width of its place while its marks and strokes keep their size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holodeck.cli.commands.test.reports.html_markup import escape
from holodeck.cli.commands.test.verdict_lines import format_rate, format_seconds

if TYPE_CHECKING:
    from holodeck.evaluation.pass_rate import PassRate
    from holodeck.evaluation.suite_report import Figures


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
