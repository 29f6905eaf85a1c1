"""The tasks of the server: their states, as functions of what clients have asked so far, without a clock.

A task is in `working` for the number of polls that its call names, or until it is released. It can ask the client a
question, fail, or be cancelled. `TaskBook` holds the tasks of a server for all of its sessions; with a file, also for
the processes that come after it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holodeck.testing.mcp.actions import Action, Ask, Message, Push
from holodeck.testing.mcp.faults import Era
from holodeck.testing.mcp.tools import INVALID_PARAMS, QUESTIONS, TOOL_BROKE, CallRefused, text_block, tool_result

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED_TASK = "io.modelcontextprotocol/related-task"
_CREATED_AT = "2026-01-01T00:00:00Z"
_FINAL = ("completed", "failed", "cancelled")
# Milliseconds between two polls that the server asks for, unless a call names others.
_POLL_MS = 10
_QUESTION_KEY = "question"


@dataclass(kw_only=True)
class FakeTask:
    """One task, with the arguments of the call that created it."""

    id: str
    tool: str
    arguments: Message
    polls: int = 0
    is_released: bool = False
    is_cancelled: bool = False
    answer: Message | None = None
    result: Message | None = None
    """The result of another tool, which the server has turned into a task."""

    @property
    def status(self) -> str:
        """The state after the polls so far."""
        if self.is_cancelled:
            return "cancelled"
        is_early = self.polls <= self.arguments.get("polls", 0) and not self.is_released
        # An answer is seen in the state only later, as the protocol allows.
        if self.arguments.get("ask") and self.polls and (self.answer is None or is_early):
            return "input_required"
        if is_early or (self.arguments.get("hold") and not self.is_released):
            return "working"
        end = str(self.arguments.get("end", "completed"))
        return end if end in _FINAL else "completed"

    def describe(self, era: Era) -> Message:
        """Return the state as a client gets it."""
        modern = era == "modern"
        return {
            "taskId": self.id,
            "status": self.status,
            "statusMessage": f"step {self.polls}" if self.status not in _FINAL else "It is over.",
            "createdAt": _CREATED_AT,
            "lastUpdatedAt": _CREATED_AT,
            "ttlMs" if modern else "ttl": self.arguments.get("ttl_ms", 60_000),
            "pollIntervalMs" if modern else "pollInterval": self.arguments.get("poll_ms", _POLL_MS),
        }

    def build_result(self) -> Message:
        """Return the result of the tool. Raises `CallRefused` for a task that has failed."""
        if self.status == "failed":
            raise CallRefused(TOOL_BROKE, "The tool broke.")
        if self.result is not None:
            return self.result
        return build_task_result(self.arguments, self.answer)


def build_task_result(arguments: Message, answer: Message | None = None) -> Message:
    """Return the result of a tool that runs as a task, called with or without one."""
    if answer is not None:
        return tool_result(text_block(json.dumps(answer)))
    text = "x" * int(arguments.get("bytes", 0)) or str(arguments.get("text", "done"))
    return tool_result(text_block(text), isError=True) if arguments.get("error") else tool_result(text_block(text))


@dataclass(kw_only=True)
class TaskBook:
    """All tasks of a server."""

    path: Path | None = None
    """The file in which they survive the process."""
    tasks: dict[str, FakeTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            stored = json.loads(self.path.read_text())
            self.tasks = {each["id"]: FakeTask(**each) for each in stored}

    def create(self, tool: str, arguments: Message, result: Message | None = None) -> FakeTask:
        """Add a task."""
        task = FakeTask(id=f"task-{len(self.tasks) + 1}", tool=tool, arguments=arguments, result=result)
        self.tasks[task.id] = task
        self.save()
        return task

    def require(self, params: Message) -> FakeTask:
        """Return the task that a request names. Raises `CallRefused`."""
        task = self.tasks.get(str(params.get("taskId")))
        if task is None:
            raise CallRefused(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return task

    def release(self, era: Era) -> list[Push]:
        """End every task that works, and return the announcements of that."""
        ended = [task for task in self.tasks.values() if task.status == "working"]
        for task in ended:
            task.is_released = True
        self.save()
        return [Push("notifications/tasks/status", params=task.describe(era)) for task in ended if era == "legacy"]

    def save(self) -> None:
        """Write the file, if there is one."""
        if self.path is not None:
            # Replaced as a whole: tests kill the server at any moment.
            written = self.path.with_suffix(".new")
            written.write_text(json.dumps([asdict(task) for task in self.tasks.values()]))
            written.replace(self.path)

    def get(self, params: Message, era: Era) -> Message:
        """Answer `tasks/get`."""
        task = self.require(params)
        task.polls += 1
        self.save()
        state = task.describe(era)
        if era == "legacy":
            return state
        if task.status == "input_required":
            _, method, question = QUESTIONS["ask_elicitation"]
            return {**state, "inputRequests": {_QUESTION_KEY: {"method": method, "params": question}}}
        if task.status == "failed":
            return {**state, "error": {"code": TOOL_BROKE, "message": "The tool broke."}}
        return {**state, "result": task.build_result()} if task.status == "completed" else state

    def update(self, params: Message) -> Message:
        """Answer `tasks/update` (modern)."""
        task = self.require(params)
        answers: dict[str, Any] = params.get("inputResponses") or {}
        task.answer = answers.get(_QUESTION_KEY, task.answer)
        self.save()
        return {}

    def cancel(self, params: Message, era: Era) -> Message:
        """Answer `tasks/cancel`."""
        task = self.require(params)
        if era == "legacy" and task.status in _FINAL:
            raise CallRefused(INVALID_PARAMS, f"Cannot cancel task: already in terminal status '{task.status}'")
        task.is_cancelled = task.is_cancelled or task.status not in _FINAL
        self.save()
        return task.describe(era) if era == "legacy" else {}

    def ask_client(self, task: FakeTask, reply: Any) -> list[Action]:
        """Return the actions of `tasks/result` for a task that asks (legacy): the question, then the result."""
        _, method, params = QUESTIONS["ask_elicitation"]
        question: Message = {"jsonrpc": "2.0", "method": method}
        question["params"] = {**params, "_meta": {RELATED_TASK: {"taskId": task.id}}}

        def answer_result(answer: Message) -> list[Action]:
            task.answer = answer["result"] if "result" in answer else {"error": answer.get("error")}
            self.save()
            return [reply(task.build_result())]

        return [Ask(question, answer_result)]
