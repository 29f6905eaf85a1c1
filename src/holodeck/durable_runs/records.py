"""A durable run as it stands: what was asked of whom, how far it has come, and what it came to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from holodeck.durable.base import DamagedWorkError, JSONObject, StoredWork
from holodeck.lib.errors import ExecutionError
from holodeck.models.events import RunResult
from holodeck.models.items import Message
from holodeck.models.items_json import decode_item, encode_item

RunStatus = Literal["running", "interrupted", "completed", "incomplete", "requires_action", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class RunInput:
    """All that it takes to make a run again."""

    agent: str
    file: Path
    """The agent file, absolute."""
    digest: str
    """Of the file as it was when the run began."""
    question: Message
    started_at: float
    """Seconds since 1970."""
    max_turns: int | None = None

    @property
    def has_file_changed(self) -> bool:
        """Whether the agent file is another than at the beginning. Raises `ExecutionError` when it is gone."""
        try:
            return file_digest(self.file) != self.digest
        except OSError as error:
            raise ExecutionError(
                f"The agent file of this run cannot be read: {self.file}: {error.strerror}. "
                "Put it back to go on with the run."
            ) from None

    def to_json(self) -> JSONObject:
        return {
            "agent": self.agent,
            "file": str(self.file),
            "digest": self.digest,
            "question": encode_item(self.question),
            "began": self.started_at,
            "max_turns": self.max_turns,
        }


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run."""

    id: str
    input: RunInput
    status: RunStatus
    is_current_version: bool
    """False for a run of a HoloDeck that kept its steps in another way: it cannot be gone on with."""
    outcome: JSONObject
    """What `outcome_to_json` said at its end; empty before."""
    steps: int
    """Turns and calls that are done."""

    @property
    def reason(self) -> str:
        """Why it is not complete, in words."""
        return str(self.outcome.get("error") or self.outcome.get("reason") or "")


def file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def outcome_to_json(result: RunResult) -> dict[str, Any]:
    """The end of a run as plain data. Its items are in its steps."""
    return {
        "status": result.status,
        "text": result.text,
        "reason": result.reason,
        "error": result.error.message if result.error is not None else "",
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "usage": {**asdict(result.usage), "total_tokens": result.usage.total_tokens},
    }


def run_input_of(work_input: JSONObject) -> RunInput:
    question = decode_item(work_input["question"])
    assert isinstance(question, Message)  # noqa: S101 - it was written as one
    return RunInput(
        agent=work_input["agent"],
        file=Path(work_input["file"]),
        digest=work_input["digest"],
        question=question,
        started_at=work_input["began"],
        max_turns=work_input["max_turns"],
    )


def damaged_run_error(run_id: str) -> DamagedWorkError:
    return DamagedWorkError(
        f"What is kept of {run_id} is damaged, and it is neither shown nor gone on with. Restore a copy of the "
        f"database, or begin the run anew."
    )


def run_record_of(work: StoredWork, step_names: Sequence[str], *, is_alive: bool) -> RunRecord:
    """Raises `DamagedWorkError` when it cannot be read."""
    if work.is_damaged:
        raise damaged_run_error(work.id)
    try:
        task = run_input_of(work.work_input)
    except (LookupError, TypeError, ValueError, AssertionError) as error:
        raise damaged_run_error(work.id) from error
    return RunRecord(
        id=work.id,
        input=task,
        status=_run_status(work, is_alive=is_alive),
        is_current_version=work.is_current_version,
        outcome=work.outcome or {},
        steps=count_steps(step_names),
    )


def count_steps(names: Sequence[str]) -> int:
    """Turns and calls: that a call was about to be sent is no step to a person."""
    return sum(name.startswith(("turn ", "call ")) for name in names)


def _run_status(work: StoredWork, *, is_alive: bool) -> RunStatus:
    if work.is_cancelled:
        return "cancelled"
    if work.stage == "running" and is_alive:
        return "running"
    if work.stage in {"running", "waiting"}:
        return "interrupted"
    status: RunStatus = work.outcome["status"] if work.outcome else "failed"
    return status
