"""The model of a job of five steps. Its answer depends on the conversation alone: a turn may be requested again.

Now and then it breaks off in the middle of an answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from bench.chaos_tools import IDEMPOTENT, OTHERS
from holodeck.testing import ScriptedModel, call_raw, say, wait
from holodeck.testing.model.script import Step, Turn, cut
from holodeck.testing.model.scripted import Received

STEPS = 5
BREAKS = 0.08  # of the answers are broken off
THINKING = 0.15  # seconds at most, in the middle of a turn
_TOOLS = [name for pair in zip(IDEMPOTENT, OTHERS, strict=True) for name in pair]


def job_of(request: Any) -> str:
    """The job that a conversation is about."""
    question = next(message["content"] for message in request["messages"] if message["role"] == "user")
    text = question if isinstance(question, str) else question[0]["text"]
    return str(text).removeprefix("Do job ")


def tool_of(job: str, step: int) -> str:
    """The tool for a step: any two that follow each other are of both kinds."""
    return _TOOLS[(_number(job) + step) % len(_TOOLS)]


def results_of(request: Any) -> dict[int, str]:
    """The tool output of each step so far, as the model received it."""
    outputs = [message for message in request["messages"] if message["role"] == "tool"]
    return {int(message["tool_call_id"].rpartition("-")[2]): str(message["content"]) for message in outputs}


class ChaosModel:
    """One step a turn in odd jobs; two at once, as long as there are two, in even ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.broken = 0
        """How many answers it broke off."""

    def build(self) -> ScriptedModel:
        return ScriptedModel(self._answer, chunk=8)

    def _answer(self, received: Received) -> Turn:
        steps = _turn(received)
        if self._random.random() >= BREAKS:
            return steps
        self.broken += 1
        return [*steps[: self._random.randint(1, len(steps))], cut(clean=self._random.random() < 0.5)]


def _turn(received: Received) -> Sequence[Step]:
    request = received.json
    job, done = job_of(request), len(results_of(request))
    thinking = asyncio.Event()
    asyncio.get_running_loop().call_later(random.uniform(0, THINKING), thinking.set)
    if done >= STEPS:
        return [say(f"All steps of job {job} "), wait(thinking), say("have been taken.")]
    steps = range(done + 1, min(done + 1 + (1 if _number(job) % 2 else 2), STEPS + 1))
    calls = [
        call_raw(tool_of(job, step), f'{{"job": "{job}", "step": {step}}}', call_id=f"call-{job}-{step}")
        for step in steps
    ]
    return [say(f"Next, step {done + 1}."), wait(thinking), *calls]


def _number(job: str) -> int:
    return int(job.partition(".")[0])
