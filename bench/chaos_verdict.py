"""Checks the tools' journal, the model's requests and the streams against the guarantees of durable runs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos_model import STEPS, job_of, results_of, tool_of
from bench.chaos_tools import IDEMPOTENT

UNKNOWN = "Whether the call took effect is unknown"
DONE = "is done."
Event = dict[str, Any]
Step = tuple[str, int]


@dataclass(kw_only=True)
class Verdict:
    """Figures, and a description of every failed check."""

    executed: int = 0
    repeated: int = 0
    unknown: int = 0
    unknown_done: int = 0
    lost: int = 0
    duplicated: int = 0
    gaps: int = 0
    repeated_requests: int = 0
    broken: list[str] = field(default_factory=list)


def judge_run(
    journal: Path,
    requests: Iterable[Any],
    finals: Mapping[str, Mapping[str, Any]],
    streams: Mapping[str, Sequence[Event]],
    followed: Mapping[str, Sequence[Event]],
) -> Verdict:
    """`finals`: responses by job as they ended; `streams`: read afterwards; `followed`:
    followed while gateways died.
    """
    verdict = Verdict()
    lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    verdict.executed = len(lines)
    results_by_job = _results_by_step(requests, verdict)
    _check_executions(lines, results_by_job, verdict)
    for job, final in finals.items():
        if final.get("status") != "completed":
            verdict.broken.append(f"job {job} ended as {final.get('status')}: {final.get('error')}")
        problems = [
            *_stream_problems(final, streams.get(job, ())),
            *_followed_problems(streams.get(job, ()), followed.get(job)),
        ]
        verdict.gaps += len(problems)
        verdict.broken += [f"job {job} ({final.get('id')}): {problem}" for problem in problems]
    for job in results_by_job:
        if len(results_by_job[job]) < STEPS:
            verdict.broken.append(f"job {job} stopped after {len(results_by_job[job])} steps")
    return verdict


def _results_by_step(requests: Iterable[Any], verdict: Verdict) -> dict[str, dict[int, str]]:
    """The tool output of every step of every job. All requests to the model must have the same output for a step."""
    results_by_job: dict[str, dict[int, str]] = defaultdict(dict)
    turns: Counter[tuple[str, int]] = Counter()
    for request in requests:
        job, results = job_of(request), results_of(request)
        turns[job, len(results)] += 1
        for step, text in results.items():
            if results_by_job[job].setdefault(step, text) != text:
                verdict.broken.append(f"step {step} of job {job} was '{results_by_job[job][step]}' and is now '{text}'")
    verdict.repeated_requests = sum(turns.values()) - len(turns)
    return results_by_job


def _check_executions(
    lines: Sequence[Mapping[str, Any]], results_by_job: Mapping[str, Mapping[int, str]], verdict: Verdict
) -> None:
    keys: dict[Step, list[str | None]] = defaultdict(list)
    for line in lines:
        keys[line["job"], line["step"]].append(line["key"])
    for job, results in results_by_job.items():
        for step, text in results.items():
            _check_step(job, step, text, keys.pop((job, step), []), verdict)
    for (job, step), keys_of_step in keys.items():  # the model has no output of it, so it must be the last one of a job
        verdict.broken.append(
            f"step {step} of job {job} was executed {len(keys_of_step)} times, and the model does not know"
        )


def _check_step(job: str, step: int, text: str, keys: list[str | None], verdict: Verdict) -> None:
    name = f"step {step} of job {job} ({tool_of(job, step)})"
    is_idempotent = tool_of(job, step) in IDEMPOTENT
    if len(keys) > 1 and is_idempotent and len(set(keys)) == 1 and keys[0]:
        verdict.repeated += len(keys) - 1
    elif len(keys) > 1:
        verdict.duplicated += len(keys) - 1
        verdict.broken.append(f"{name} was executed {len(keys)} times, with the keys {keys}")
    if UNKNOWN in text:
        verdict.unknown += 1
        verdict.unknown_done += bool(keys)
        if is_idempotent:
            verdict.broken.append(f"{name} may be repeated, and its outcome was called unknown")
    elif DONE not in text:
        verdict.broken.append(f"{name} failed: {text}")
    elif not keys:
        verdict.lost += 1
        verdict.broken.append(f"{name} was called done, and was not executed")


def _stream_problems(final: Mapping[str, Any], events: Sequence[Event]) -> list[str]:
    """A stream read after everything: all numbers, every item done once, and its end is what the response is."""
    problems = []
    numbers = [event["sequence_number"] for event in events]
    if numbers != list(range(len(events))):
        problems.append(f"the stream is numbered {numbers}")
    if not events or events[-1].get("response") != final:
        problems.append(f"the stream does not end with the response but with {events[-1]['type'] if events else None}")
    announced = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    # Calls of one turn end in any order.
    if len(set(announced)) < len(announced) or sorted(announced) != sorted(done):
        problems.append(f"items are announced at {announced} and done at {done}")
    standing = _standing_items(events)
    if [standing[index] for index in sorted(standing)] != final.get("output"):
        problems.append(f"the items that stand are at {sorted(standing)}; the response has {len(final['output'])}")
    return problems


def _standing_items(events: Sequence[Event]) -> dict[int, Any]:
    """The items done in a stream, without those of answers that were begun anew: the next `in_progress` lacks them."""
    items: dict[int, Any] = {}
    for event in events:
        if event["type"] == "response.in_progress":
            left = {item["id"] for item in event["response"]["output"]}
            items = {index: item for index, item in items.items() if item["id"] in left}
        elif event["type"] == "response.output_item.done":
            items[event["output_index"]] = event["item"]
    return items


def _followed_problems(events: Sequence[Event], followed: Sequence[Event] | None) -> list[str]:
    """The events of a reader that reconnected after every crash must equal those read afterwards."""
    if followed is None or list(followed) == list(events):
        return []
    numbers = [event["sequence_number"] for event in followed]
    index = next(
        (at for at, (one, other) in enumerate(zip(followed, events, strict=False)) if one != other), len(followed)
    )
    return [f"a reader heard the numbers {numbers}, and something else from the event at {index} on"]
