"""One run for each boundary, and its gateway killed exactly there: nothing is done twice, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aio import aio
from durable.survival import UNKNOWN, Survivor, answers, crash

from holodeck.testing import call, say
from holodeck.testing.script import Turn

SECONDS = 240.0
PAUSE = 0.5  # longer than the stream waits before more of it is written
AT_ONCE = 3  # processes that start take a core each

FINISHED = [
    *("submit 1 after", "turn 1 before", "turn 1 done", "turn 1 after", "send 1 before", "send 1 done"),
    *("call 1 after", "turn 2 done", "send 2 before", "call 2 after", "turn 3 before", "turn 3 done", "turn 3 after"),
    *("grow 2 before", "grow 2 after", "grow 3 before", "grow 3 after", "finish 1 before", "finish 1 after"),
]
"""Where no call is under way."""
NOT_BEGUN = ["send 1 after", "call 1 before", "dispatch 1 before"]
"""Where the first call may have been made, and was not."""
BEGUN = ["dispatch 1 after", "call 1 done"]
"""Where the first call was made, and its result was not kept."""


def two_calls(messages: list[dict[str, Any]]) -> Turn:
    """Two calls, one after the other, and an answer."""
    match len(answers(messages)):
        case 0:
            return [say("I begin."), call("echo", text="one")]
        case 1:
            return [call("echo", text="two"), call("slow", seconds=PAUSE)]
        case _:
            return say("done")


def called(survivor: Survivor) -> list[str]:
    """What was echoed, in order."""
    return [arguments["text"] for arguments in survivor.executed if "text" in arguments]


async def crashes(folder: Path, points: list[str]) -> dict[str, Survivor]:
    """What came of a run for each boundary, a few of them side by side."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(point: str) -> Survivor:
        async with room:
            return await crash(folder / point.replace(" ", "-"), point, two_calls)

    return dict(zip(points, await asyncio.gather(*map(one, points)), strict=True))


@pytest.mark.proves("D-32", "D-28")
@aio(SECONDS)
async def test_a_run_survives_a_kill_at_every_boundary(tmp_path: Path) -> None:
    for point, survivor in (await crashes(tmp_path, FINISHED)).items():
        print(point)
        assert survivor.found["status"] == "completed", point
        assert called(survivor) == ["one", "two"], point
        assert survivor.told[:2] == ["one", "two"], point
        survivor.check_stream()
        survivor.check_once()


@pytest.mark.proves("D-32", "D-16")
@aio(SECONDS)
async def test_a_call_that_may_have_been_made_is_not_made_again(tmp_path: Path) -> None:
    for point, survivor in (await crashes(tmp_path, [*NOT_BEGUN, *BEGUN])).items():
        print(point)
        assert survivor.found["status"] == "completed", point
        made = ["one", "two"] if point in BEGUN else ["two"]
        assert called(survivor) == made, point
        unknown, known, _ = survivor.told
        assert UNKNOWN in unknown, point
        assert known == "two", point
        survivor.check_stream()
        survivor.check_once()
