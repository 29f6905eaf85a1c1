"""Durable runs as data for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holodeck.lib.limits import MAX_ANSWER_SHOWN
from holodeck.runs.kept_run import KeptRun


def run_data(run: KeptRun) -> dict[str, Any]:
    """A run without its steps."""
    return {
        "id": run.id,
        "agent": run.task.agent,
        "file": str(run.task.file),
        "status": run.status,
        "started": moment(run.task.began),
        "steps": run.steps,
        "question": run.task.question.text[:MAX_ANSWER_SHOWN],
    }


def moment(seconds: float) -> str:
    """A time for programs."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
