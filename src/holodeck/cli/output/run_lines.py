"""Single lines of text about a run: calls, results, failures, times, durations and the summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any

from holodeck.lib.escape import format_arguments, one_line
from holodeck.lib.limits import MAX_ARGUMENTS_SHOWN, MAX_FAILURE_SHOWN, MAX_OUTCOME_SHOWN
from holodeck.models.events import RunResult, ToolFinished, failure_reason
from holodeck.models.items import FunctionCallOutput, TextContent, Usage

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner

# Characters of the result of one call with `--verbose`: more scrolls away what came before.
MAX_DETAIL_SHOWN = 10_000


def call_title(agent: AgentRunner, name: str) -> str:
    """Return `files.read_file` for a tool of a server, and the bare name for any other tool."""
    route = agent.find_route(name)
    return one_line(f"{route.server.name}.{route.tool.name}" if route is not None else name, MAX_ARGUMENTS_SHOWN)


def call_started_line(title: str, arguments: Mapping[str, Any]) -> str:
    """Return the line for a call that starts."""
    return f"  > {title}  {format_arguments(arguments)}".rstrip()


def call_finished_line(agent: AgentRunner, event: ToolFinished, *, has_outcome: bool = True) -> tuple[str, str]:
    """Return the line for a finished call, with its duration and the start of its result, and the colour."""
    is_error = event.output.is_error
    mark, colour, limit = ("x", "red", MAX_FAILURE_SHOWN) if is_error else ("=", "green", MAX_OUTCOME_SHOWN)
    text = one_line(output_text(event.output), limit) if has_outcome else ""
    outcome = f"{format_duration(event.seconds)}  {text}".rstrip()
    return f"  {mark} {call_title(agent, event.name)}  {outcome}", colour


def detail_block(text: str) -> str:
    """Return a result as lines below the line of its call, at most `MAX_DETAIL_SHOWN` characters."""
    hidden = len(text) - MAX_DETAIL_SHOWN
    more = f"\n... and {hidden} more characters" if hidden > 0 else ""
    return indent(f"{text[:MAX_DETAIL_SHOWN]}{more}", "    ")


def output_text(output: FunctionCallOutput) -> str:
    """Return the text of a tool's output; other content is shown as its type in brackets."""
    return "\n".join(part.text if isinstance(part, TextContent) else f"[{part.type}]" for part in output.content)


def run_summary_line(result: RunResult) -> str:
    """Return a text such as `completed: 2 turns, 1 tool call, 1,234 tokens (1,100 in, 134 out), cost 0.0021, 3.4 s`.

    It has the share of the input that came from a prompt cache, if any did, and the cost, if the price is known.
    """
    parts = [_format_count(result.turns, "turn"), _format_count(result.tool_calls, "tool call")]
    parts += _list_spending(result.usage, result.cost)
    missing = ", ".join(server.name for server in result.missing_servers)
    end = f"; missing servers: {missing}" if missing else ""
    return f"{result.status}: {', '.join([*parts, format_duration(result.seconds)])}{end}"


def total_line(results: Sequence[RunResult], stopped: int) -> str:
    """Return what several answers took together. `stopped`: how many others were stopped, of unknown tokens."""
    costs = [result.cost for result in results]
    cost = None if None in costs else sum(each for each in costs if each is not None)
    usage = sum((result.usage for result in results), Usage())
    parts = [_format_count(len(results), "answer"), *_list_spending(usage, cost)]
    without = f"; without {_format_count(stopped, 'answer')} that you stopped" if stopped else ""
    return f"In all {', '.join(parts)}{without}"


def _list_spending(usage: Usage, cost: float | None) -> Iterator[str]:
    if usage.total_tokens:
        share = usage.cached_tokens / max(usage.input_tokens, 1)
        cached = f"{share:.0%} of them cached, " if usage.cached_tokens else ""
        counts = f"{usage.input_tokens:,} in, {cached}{usage.output_tokens:,} out"
        yield f"{usage.total_tokens:,} tokens ({counts})"
    if cost is not None:
        yield f"cost {cost:.4g}"


def failure_line(result: RunResult) -> tuple[str, str] | None:
    """Return that reason as a line, and its colour; None when the run is complete."""
    reason, (label, colour) = (
        failure_reason(result),
        ("Error", "red") if result.error is not None else ("Incomplete", "yellow"),
    )
    return (f"{label}: {reason}", colour) if reason else None


def format_duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_time(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def format_local_time(seconds: float) -> str:
    """Return a Unix time in the time zone of the user, for a person."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
