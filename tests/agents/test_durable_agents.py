"""Durable runs of agents in code: their processes are killed, other ones go on, and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from cli.running_command import list_runs, wait_model_requests

from holodeck import Agent, RunContext, Session, runs
from holodeck.durable_runs.records import find_local_state
from holodeck.lib.errors import ExecutionError
from holodeck.models.items import Message
from holodeck.testing import ScriptedModel, call, say, wait
from holodeck.testing.model.scripted import ScriptedServer

# A program with an agent in code. `mark` writes down each of its calls; `hang` writes, and never returns.
PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from holodeck import LLM, Agent, RunContext, Session, runs

def mark(context: RunContext[str], word: str) -> str:
    with open("marks", "a") as file:
        file.write(f"{context.deps} {word}\\n")
    return f"marked {word}"

def hang() -> str:
    with open("marks", "a") as file:
        file.write("hang\\n")
    time.sleep(600)
    return "never"

model = LLM(provider="openai_compatible", name="scripted", endpoint=sys.argv[1])
agent = Agent(model, name="marker", tools=[mark, hang], deps_type=str)
session = Session.open(sys.argv[4]) if len(sys.argv) > 4 else None
more = {} if session is None else {"session": session}
if sys.argv[2] == "run":
    result = agent.run_sync(sys.argv[3], deps="first", durable=True, **more)
else:
    result = runs.resume_sync(sys.argv[3], agent, deps="second", **more)
print(result.output)
"""


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    project = AgentProject(tmp_path)
    project.env["HOLODECK_STATE"] = str(tmp_path / "state")
    (project.path / "program.py").write_text(PROGRAM)
    return project


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the durable runs of this process."""
    monkeypatch.setenv("HOLODECK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@asynccontextmanager
async def start_program(project: AgentProject, model: ScriptedServer, *args: str) -> AsyncIterator[Any]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.path.parent), **project.env}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "program.py", model.url, *args),
        cwd=project.path,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run_program(project: AgentProject, model: ScriptedServer, *args: str) -> tuple[int, str, str]:
    async with start_program(project, model, *args) as process:
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


async def kill(process: Any) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


def marks(project: AgentProject) -> list[str]:
    file = project.path / "marks"
    return file.read_text().splitlines() if file.exists() else []


async def wait_marks(project: AgentProject, count: int) -> None:
    while len(marks(project)) < count:  # noqa: ASYNC110 - another process writes them
        await asyncio.sleep(0.02)


@async_test(240)
async def test_a_killed_program_goes_on_after_its_last_finished_step(project: AgentProject) -> None:
    turns = (call("mark", word="one"), call("hang"), call("mark", word="two"), say("Done."))
    async with serve_scripted(*turns) as model:
        async with start_program(project, model, "run", "Mark both") as program:
            await wait_marks(project, 2)
            (running,) = await list_runs(project)
            await kill(program)
        assert (running["status"], running["agent"], running["file"]) == ("running", "marker", None)
        (left,) = await list_runs(project)
        assert left == running | {"status": "interrupted"}
        code, out, err = await run_program(project, model, "resume", left["id"])
        assert (code, out) == (0, "Done.\n"), err
        assert "Whether the call took effect is unknown" in messages_of_turn(model, 2)[-1]["content"]
        assert len(model.received) == 4, "no finished turn was asked again"
        (ended,) = await list_runs(project)
        assert ended["status"] == "completed"
        code, _, err = await run_program(project, model, "resume", left["id"])
        assert code == 1
        assert "has ended: completed" in err
    assert marks(project) == ["first one", "hang", "second two"], "deps are those of the program that goes on"


@async_test(240)
async def test_the_command_line_shows_a_run_of_a_program_and_says_what_can_resume_it(project: AgentProject) -> None:
    async with serve_scripted(call("hang")) as model:
        async with start_program(project, model, "run", "Hang on") as program:
            await wait_marks(project, 1)
            await kill(program)
        (left,) = await list_runs(project)
        shown = await project.run_holodeck("runs", "show", left["id"])
        assert "marker  (made in code)" in shown.stdout
        assert f"holodeck.runs.resume('{left['id']}', agent)" in shown.stdout
        refused = await project.run_holodeck("runs", "resume", left["id"])
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "Only the program can go on with it: holodeck.runs.resume(" in refused.stderr
        none = await project.run_holodeck("runs", "resume", "--last")
        assert "No run was interrupted" in none.stderr
        assert (await project.run_holodeck("runs", "cancel", left["id"])).returncode == 0
        code, _, err = await run_program(project, model, "resume", left["id"])
        assert code == 1
        assert "has ended: cancelled" in err


@async_test(240)
async def test_a_resumed_run_is_appended_to_its_session_unless_that_went_on(project: AgentProject) -> None:
    never = asyncio.Event()
    turns = (say("Hello Ada."), [wait(never)], say("Ada."), [wait(never)], say("Meanwhile."), say("Late."))
    async with serve_scripted(*turns) as model:
        await run_program(project, model, "run", "I am Ada.", "chat")
        async with start_program(project, model, "run", "Who am I?", "chat") as program:
            await wait_model_requests(model, 2)
            await kill(program)
        left = (await list_runs(project))[0]
        code, out, err = await run_program(project, model, "resume", left["id"], "chat")
        assert (code, out) == (0, "Ada.\n"), err
        assert [each["content"] for each in messages_of_turn(model, 2)] == ["I am Ada.", "Hello Ada.", "Who am I?"]
        async with start_program(project, model, "run", "Slow?", "chat") as program:
            await wait_model_requests(model, 4)
            await kill(program)
        left = (await list_runs(project))[0]
        assert (await run_program(project, model, "run", "Quick?", "chat"))[1] == "Meanwhile.\n"
        code, _, err = await run_program(project, model, "resume", left["id"], "chat")
        assert code == 1
        assert "SessionConflictError" in err
        assert (await run_program(project, model, "resume", left["id"]))[1] == "Late.\n"
        session = Session.open("chat", store=Path(project.env["HOLODECK_STATE"]) / "sessions.db")
        texts = [item.text for item in session.items if isinstance(item, Message)]
    assert texts == ["I am Ada.", "Hello Ada.", "Who am I?", "Ada.", "Quick?", "Meanwhile."]


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_several_durable_runs_of_one_process_go_on_side_by_side() -> None:
    may_answer = asyncio.Event()
    agents = [Agent(ScriptedModel([wait(may_answer), say(f"Answer {number}.")])) for number in range(3)]
    tasks = [asyncio.create_task(agent.run(f"Question {n}", durable=True)) for n, agent in enumerate(agents)]
    while not all(agent._spec.model.requests for agent in agents):  # type: ignore[union-attr] # noqa: ASYNC110
        await asyncio.sleep(0.01)
    found = await asyncio.to_thread(runs.list)
    assert {run.status for run in found} == {"running"}
    may_answer.set()
    assert [(await task).output for task in tasks] == ["Answer 0.", "Answer 1.", "Answer 2."]
    found = await asyncio.to_thread(runs.list)
    assert sorted((run.question, run.status, run.text) for run in found) == [
        (f"Question {number}", "completed", f"Answer {number}.") for number in range(3)
    ]


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_a_cancelled_task_leaves_a_run_that_the_same_process_can_resume() -> None:
    never, beside = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(call("add", a=1, b=2), [wait(never)], say("It is 3."))
    added: list[int] = []

    def add(a: int, b: int) -> int:
        added.append(a + b)
        return a + b

    # Another run keeps the engine of the process open meanwhile.
    other = asyncio.create_task(Agent(ScriptedModel([wait(beside), say("Yes.")])).run("Other", durable=True))
    agent = Agent(model, name="adder", tools=[add])
    task = asyncio.create_task(agent.run("Add", durable=True, run_id="run_mine"))
    while len(model.requests) < 2:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = await asyncio.to_thread(runs.get, "run_mine")
    assert (left.status, left.steps, left.agent) == ("interrupted", 2, "adder")
    with pytest.raises(ExecutionError, match="of the agent 'adder', not of 'agent'"):
        await runs.resume("run_mine", Agent(model))
    with pytest.raises(ExecutionError, match="There is a run 'run_mine' already"):
        await agent.run("Again", durable=True, run_id="run_mine")
    events = [event async for event in runs.stream("run_mine", agent)]
    assert events[-1].type == "run.finished"
    assert events[-1].result.output == "It is 3."
    assert added == [3]
    steps = await asyncio.to_thread(runs.list_steps, "run_mine")
    assert [(step.kind, step.name, step.status) for step in steps] == [
        *(("turn", "1", "done"), ("call", "add", "done"), ("turn", "2", "done"))
    ]
    beside.set()
    assert (await other).output == "Yes."


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_history_deps_and_typed_output_are_those_of_a_plain_run() -> None:
    def whoami(context: RunContext[str]) -> str:
        return f"{context.deps} in {context.run_id}"

    model = ScriptedModel(say("Hello."), call("whoami"), say("7"))
    first = await Agent(model).run("Hi")
    agent = Agent(model, tools=[whoami], output_type=int, deps_type=str)
    result = await agent.run("A number?", history=first.history, deps="Ada", run_id="run_seven", durable=True)
    assert result.output == 7
    assert result.history[:2] == first.history
    assert "Ada in run_seven" in str(result.items[1])


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_a_run_that_is_cancelled_from_elsewhere_ends_as_cancelled() -> None:
    agent = Agent(ScriptedModel([say("Once"), wait(asyncio.Event())]))
    async with aclosing(agent.stream("Tell", durable=True, run_id="run_x")) as events:
        async for event in events:
            if event.type == "text.added":
                await asyncio.to_thread(runs.cancel, "run_x")
    assert event.type == "run.finished"
    assert event.result.status == "cancelled"
    with pytest.raises(ExecutionError, match="has ended already: cancelled"):
        runs.cancel("run_x")


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_a_run_is_cancelled_from_elsewhere_also_after_its_status_could_not_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent(ScriptedModel([say("Once"), wait(asyncio.Event())]))
    async with aclosing(agent.stream("Tell", durable=True, run_id="run_x")) as events:
        async for event in events:
            if event.type == "text.added":
                database = find_local_state(os.environ).database
                rename_table(database, "workflow_status", "away")
                while "process.task_failed" not in caplog.text:  # noqa: ASYNC110 - no event says it
                    await asyncio.sleep(0.02)
                rename_table(database, "away", "workflow_status")
                await asyncio.to_thread(runs.cancel, "run_x")
    assert event.type == "run.finished"
    assert event.result.status == "cancelled"


def rename_table(database: Path, name: str, new_name: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        # Views and keys of other tables go on naming the one that is away.
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute(f"ALTER TABLE {name} RENAME TO {new_name}")


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_a_tool_of_a_durable_run_can_start_another_one() -> None:
    inner = Agent(ScriptedModel(say("Inner.")), name="inner")

    async def ask() -> str:
        return (await inner.run("Inner?", durable=True)).output

    outer = Agent(ScriptedModel(call("ask"), say("Outer.")), name="outer", tools=[ask])
    result = await outer.run("Outer?", durable=True)
    assert "Inner." in str(result.items[1])
    found = await asyncio.to_thread(runs.list)
    assert sorted((run.agent, run.status, run.steps) for run in found) == [
        ("inner", "completed", 1),
        ("outer", "completed", 3),
    ]


@pytest.mark.usefixtures("state")
@async_test(60)
async def test_a_durable_run_in_a_second_event_loop_at_the_same_time_is_refused_with_the_reason() -> None:
    may_answer = asyncio.Event()
    model = ScriptedModel([wait(may_answer), say("Yes.")], say("Later."))
    running = asyncio.create_task(Agent(model).run("Go", durable=True))
    while not model.requests:  # noqa: ASYNC110 - the model has no event for it
        await asyncio.sleep(0.01)
    with pytest.raises(ExecutionError, match="in another event loop"):
        await asyncio.to_thread(Agent(model).run_sync, "Too", durable=True)
    may_answer.set()
    await running
    assert (await asyncio.to_thread(Agent(model).run_sync, "Now", durable=True)).output == "Later."


def test_there_are_no_runs_before_the_first(state: Path) -> None:
    assert runs.list() == []
    with pytest.raises(ExecutionError, match="There are no durable runs yet"):
        runs.get("run_x")
    assert not state.exists()


def test_without_the_extra_the_error_names_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['dbos'] = None\n")
    code = (
        "from holodeck import Agent, ConfigError, runs\nfrom holodeck.testing import ScriptedModel, say\nimport json\n"
        "agent = Agent(ScriptedModel(say('Plain.')))\nfound = []\n"
        "for use in (lambda: agent.run_sync('Hi', durable=True), runs.list):\n"
        "    try:\n        use()\n    except ConfigError as error:\n        found.append(str(error))\n"
        "print(json.dumps([*found, agent.run_sync('Hi').output]))\n"
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    first, second, answer = json.loads(done.stdout)
    assert "[durable]'" in first
    assert "[durable]'" in second
    assert answer == "Plain."
