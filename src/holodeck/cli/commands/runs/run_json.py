"""Durable runs as data for `--json`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holodeck.durable_runs.records import RunRecord
from holodeck.lib.limits import MAX_ANSWER_SHOWN


def run_data(run: RunRecord) -> dict[str, Any]:
    """Return a run without its steps."""
    return {
        "id": run.id,
        "agent": run.input.agent,
        "file": None if run.input.file is None else str(run.input.file),
        "status": run.status,
        "started": format_time(run.input.started_at),
        "steps": run.steps,
        "question": run.question[:MAX_ANSWER_SHOWN],
    }


def format_time(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
