"""Examples of `holodeck.runs`."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck.runs"
PLACE = 80

EXAMPLES = (
    Example(
        title="Go on with a run",
        about=(
            "Here the first run is stopped while the model thinks, as a crash would. The second part, which may be "
            "another process, goes on with it: the finished call is not repeated."
        ),
        names=(
            *("RunRecord", "RunStatus", "RunStep", "cancel", "get", "list", "list_steps"),
            *("resume", "resume_sync", "stream"),
        ),
        code="""\
import asyncio
from contextlib import aclosing

from holodeck import Agent, runs
from holodeck.testing import ScriptedModel, call, say, wait

model = ScriptedModel(call("move", report="May"), [say("Well,"), wait(asyncio.Event())], say("May is moved."))


def move(report: str) -> str:
    print("moving", report)
    return "moved"


async def main() -> None:
    agent = Agent(model, name="archivist", tools=[move])
    async with aclosing(agent.stream("Move May", durable=True, run_id="run_may")) as events:
        async for event in events:
            if event.type == "text.added":
                break
    run: runs.RunRecord = await asyncio.to_thread(runs.get, "run_may")
    status: runs.RunStatus = run.status
    print(status, run.steps)
    async for event in runs.stream("run_may", agent):
        if event.type == "run.finished":
            print(event.result.output)
    steps: list[runs.RunStep] = await asyncio.to_thread(runs.list_steps, "run_may")
    print([f"{step.kind} {step.name}" for step in steps])
    try:
        await runs.resume("run_may", agent)
        await asyncio.to_thread(runs.cancel, "run_may")
    except Exception as error:
        print(error)


asyncio.run(main())""",
        output="""\
moving May
interrupted 2
May is moved.
['turn 1', 'call move', 'turn 2']
run_may has ended: completed. See: holodeck runs show run_may""",
    ),
)
