"""One run for each boundary, and its gateway killed exactly there: nothing is done twice, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import STAND_IN, UNKNOWN, CrashCase, SurvivedResponse, run_crash_cases, tool_answers
from gateway.running_gateway import MODEL
from storage.postgres_server import PostgresServer

from holodeck.testing import call, say
from holodeck.testing.model.script import Turn

SECONDS = 600.0
PAUSE = 1.5  # longer than the stream waits before more of it is written, and than a quick call takes

SENT = "response.mcp_call.in_progress 3"
"""The calls of the second turn are in the stream."""

QUIET = [
    *("submit 1 after", "turn 1 before", "turn 1 done", "turn 1 after"),
    *("send 1 before", "send 1 done", "call 1 after"),
]
LATER = [
    *("turn 2 done", "call 2 after", "turn 3 done", "finish 1 before", "finish 1 after"),
    *(f"{SENT} before and call 2 after", f"{SENT} after and call 2 after", "grow 2 after and call 2 after"),
]
"""Where no call is under way that could have done harm."""
NOT_BEGUN = ["send 1 after", "dispatch 1 before"]
"""Where the first call may have been made, and was not."""
BEGUN = ["dispatch 1 after", "call 1 done"]
"""Where the first call was made, and its result was not kept."""


def case(point: str) -> CrashCase:
    """Two calls, one after the other, and an answer."""
    name = f"<{point}>"

    def script(messages: list[dict[str, Any]]) -> Turn:
        match len(tool_answers(messages)):
            case 0:
                return [say("I begin."), call("echo", text=f"{name} one")]
            case 1:
                return [call("echo", text=f"{name} two"), call("slow", seconds=PAUSE)]
            case _:
                return say("done")

    return CrashCase(name=name, point=point, script=script)


async def run_killed_at(
    folder: Path, *chains: list[str], has_stand_in: bool = False, postgres: PostgresServer | None = None
) -> dict[str, SurvivedResponse]:
    """The result of a run for each boundary. Each chain has gateways of its own: two at once on a PostgreSQL."""
    found: dict[str, SurvivedResponse] = {}
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number, points in enumerate(chains):
            case_folder = folder / str(number)
            case_folder.mkdir()
            cases = [case(point) for point in points]
            url = await asyncio.to_thread(postgres.new_database) if postgres is not None else ""
            running = run_crash_cases(case_folder, cases, has_stand_in=has_stand_in, database_url=url)
            tasks.append(group.create_task(running))
    for task in tasks:
        found |= task.result()
    return found


@pytest.mark.proves("D-32", "D-28", "D-16")
@pytest.mark.parametrize(
    ("has_stand_in", "has_other"),
    [
        pytest.param(False, False, id="usual"),
        pytest.param(True, False, id="stand-in", marks=pytest.mark.long),
        pytest.param(True, True, id="stand-in at another gateway", marks=pytest.mark.long),
    ],
)
@async_test(SECONDS)
async def test_a_run_survives_a_kill_at_every_boundary(
    tmp_path: Path, request: pytest.FixtureRequest, has_stand_in: bool, has_other: bool
) -> None:
    postgres = request.getfixturevalue("postgres") if has_other else None
    chains = [*QUIET, *NOT_BEGUN], [*LATER, *BEGUN]
    found = await run_killed_at(tmp_path, *chains, has_stand_in=has_stand_in, postgres=postgres)
    assert len(found) == len([*QUIET, *LATER, *NOT_BEGUN, *BEGUN])
    for name, survivor in found.items():
        point = name.strip("<>")
        assert survivor.response["status"] == "completed", point
        assert survivor.response["model"] == (STAND_IN if has_stand_in else MODEL), point
        assert survivor.response["output"][-1]["content"][0]["text"] == "done", point
        assert survivor.executed == (["two"] if point in NOT_BEGUN else ["one", "two"]), point
        first, second, _ = survivor.model_tool_answers
        is_unknown = point in {*NOT_BEGUN, *BEGUN}
        assert (UNKNOWN in first) == is_unknown, point
        assert is_unknown or first == f"{name} one", point
        assert second == f"{name} two", point
        survivor.check_stream()
        survivor.check_once()
        survivor.check_prompts()
