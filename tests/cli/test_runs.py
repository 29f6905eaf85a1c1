"""Durable runs at the terminal: their processes are killed, and they go on; nothing that was done is done again."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from cli.running_command import list_runs, start_command, wait_model_requests
from patience import patience
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.testing.mcp.journal import Journal
from holodeck.testing.model.script import call, say, status, wait


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


def calls(project: AgentProject) -> list[dict[str, object]]:
    """The requests that the server received, in all of its processes."""
    return [dict(each.params["arguments"]) for each in Journal(project.journal).requests if each.method == "tools/call"]


def home(project: AgentProject) -> Path:
    return Path(project.env.get("HOLODECK_STATE", project.path.parent / ".local" / "state" / "holodeck"))


@contextmanager
def run_database(project: AgentProject) -> Iterator[sqlite3.Connection]:
    """The database of the runs, to be changed by the test."""
    with closing(sqlite3.connect(home(project) / "runs.db")) as connection, connection:
        yield connection


def tables(folder: Path) -> int:
    """The number of tables that the database has so far, also while it is being created."""
    for file in (*folder.glob("runs.db.*.new"), *folder.glob("runs.db")):
        with (
            suppress(sqlite3.OperationalError),  # it is written to, or was finished just now
            closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database,
        ):
            return int(database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])
    return 0


@pytest.mark.proves("D-32")
@async_test(120)
async def test_a_killed_run_goes_on_from_its_last_finished_step(project: AgentProject) -> None:
    never = asyncio.Event()
    turns = (call("add", a=1, b=2), [say("So far 3."), call("add", a=3, b=4)], [wait(never)], say("It is 7."))
    async with serve_scripted(*turns) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Add 1, 2 and 4") as first:
            run_id = await first.wait_run_id()
            await wait_model_requests(model, 3)
            (running,) = await list_runs(project)
            await first.wait_exit(signal.SIGKILL)
        assert (running["status"], running["steps"], running["question"]) == ("running", 4, "Add 1, 2 and 4")
        (left,) = await list_runs(project)
        assert left == running | {"status": "interrupted"}
        done = await project.run_holodeck("runs", "resume", run_id)
        assert (done.returncode, done.stdout) == (0, "It is 7.\n"), done.stderr
        for words in (
            f"Going on with {run_id}: 4 steps done",
            "> calc.add  a=1, b=2",
            "So far 3.",
            "completed: 3 turns",
        ):
            assert words in done.stderr
        (ended,) = await list_runs(project)
        assert (ended["status"], ended["steps"]) == ("completed", 5)
    assert calls(project) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}], "no finished call was repeated"
    assert len(model.received) == 4, "only the turn that had no answer was asked again"
    assert messages_of_turn(model, 3) == messages_of_turn(model, 2)
    await project.wait_servers_gone()


@pytest.mark.proves("D-32")
@async_test(60)
async def test_a_first_run_that_is_killed_over_its_database_spoils_no_other(project: AgentProject) -> None:
    async with serve_scripted(say("one"), say("two")) as model:
        project.write(model)
        async with start_command(project, "run", "--durable", "Go") as first:
            while not tables(home(project)):  # noqa: ASYNC110 - another process makes them
                await asyncio.sleep(0)
            await first.wait_exit(signal.SIGKILL)
        done = await project.run_holodeck("run", "--durable", "Go")
        assert done.returncode == 0, done.stderr
        assert (await list_runs(project))[0]["status"] == "completed"
    assert {file.name for file in home(project).iterdir()} == {"runs.db", "runs.door", "alive"}


@pytest.mark.proves("D-16", "D-32")
@async_test(120)
async def test_an_interrupted_call_is_not_repeated_and_the_model_gets_an_error(project: AgentProject) -> None:
    async with serve_scripted(call("slow", seconds=60), say("I will look first.")) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Do it") as first:
            await first.wait_run_id()
            await Journal(project.journal).received("tools/call", within=30)
            await first.wait_exit(signal.SIGKILL)
        (left,) = await list_runs(project)
        shown = await project.run_holodeck("runs", "show", left["id"])
        assert 'slow  {"seconds":60}  under way' in shown.stdout.replace(": 60", ":60")
        done = await project.run_holodeck("runs", "resume", "--last")
        assert (done.returncode, done.stdout) == (0, "I will look first.\n"), done.stderr
        assert "Whether the call took effect is unknown" in messages_of_turn(model, 1)[-1]["content"]
        shown = await project.run_holodeck("runs", "show", left["id"])
        assert "unknown: The process that ran this call ended" in shown.stdout
    assert len(calls(project)) == 1


@async_test(120)
async def test_ctrl_c_leaves_a_run_that_can_be_gone_on_with(project: AgentProject) -> None:
    never = asyncio.Event()
    async with serve_scripted(call("add", a=1, b=2), [say("Well"), wait(never)], say("3")) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "--json", "What is 1 + 2?") as first:
            run_id = await first.wait_run_id()
            await wait_model_requests(model, 2)
            code, out, err = await first.wait_exit(signal.SIGINT)
        assert code == 130
        assert f"Left after 2 steps. Go on with: holodeck runs resume {run_id}" in err
        assert (json.loads(out)["run_id"], json.loads(out)["status"]) == (run_id, "interrupted")
        done = await project.run_holodeck("runs", "resume", "--last", "--json")
        result = json.loads(done.stdout)
    assert (result["run_id"], result["status"], result["text"]) == (run_id, "completed", "3")
    assert [item["type"] for item in result["items"]] == ["function_call", "function_call_output", "message"]
    assert len(calls(project)) == 1


@async_test(120)
async def test_a_call_under_way_at_ctrl_c_may_end(project: AgentProject) -> None:
    async with serve_scripted(call("slow", seconds=2), say("done")) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Do it") as first:
            await first.wait_run_id()
            await Journal(project.journal).received("tools/call", within=30)
            code, _, err = await first.wait_exit(signal.SIGINT)
        assert code == 130
        assert "A call is under way" in err
        assert "Left after 2 steps." in err
        done = await project.run_holodeck("runs", "resume", "--last", "-q")
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert len(calls(project)) == 1


@async_test(120)
async def test_a_run_in_another_process_is_cancelled_and_stops(project: AgentProject) -> None:
    async with serve_scripted(call("slow", seconds=60)) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Do it") as first:
            run_id = await first.wait_run_id()
            await Journal(project.journal).received("tools/call", within=30)
            done = await project.run_holodeck("runs", "cancel", run_id)
            assert (done.returncode, done.stderr) == (0, f"{run_id} is cancelled; its process is stopping.\n")
            async with asyncio.timeout(patience(20)):
                code, _, err = await first.wait_exit()
        assert code == 130
        assert "The run was cancelled." in err
        (found,) = await list_runs(project)
        assert found["status"] == "cancelled"
        again = await project.run_holodeck("runs", "cancel", run_id)
        assert (again.returncode, again.stderr) == (1, f"Error: {run_id} has ended already: cancelled.\n")
        resumed = await project.run_holodeck("runs", "resume", run_id)
        assert resumed.returncode == 1
        assert f"{run_id} has ended: cancelled." in resumed.stderr
    await project.wait_servers_gone()


@async_test(120)
async def test_a_run_that_runs_elsewhere_is_not_run_twice_and_others_are_left_alone(project: AgentProject) -> None:
    never, rest = asyncio.Event(), asyncio.Event()
    async with serve_scripted([wait(rest), say("one")], [wait(never)], say("two")) as model:
        project.write(model)
        async with start_command(project, "run", "--durable", "First") as first:
            first_id = await first.wait_run_id()
            await wait_model_requests(model, 1)
            async with start_command(project, "run", "--durable", "Second") as second:
                second_id = await second.wait_run_id()
                await wait_model_requests(model, 2)
                refused = await project.run_holodeck("runs", "resume", first_id)
                assert refused.returncode == 1
                assert f"{first_id} is running in another process; nothing was done here." in refused.stderr
                none = await project.run_holodeck("runs", "resume", "--last")
                assert (none.returncode, none.stderr) == (1, "Error: No run was interrupted. See: holodeck runs list\n")
                await second.wait_exit(signal.SIGKILL)
            resumed = await project.run_holodeck("runs", "resume", "--last")
            assert resumed.stdout == "two\n", resumed.stderr
            rest.set()
            assert (await first.wait_exit())[:2] == (0, "one\n")
        assert {run["id"]: run["status"] for run in await list_runs(project)} == {
            first_id: "completed",
            second_id: "completed",
        }
    assert len(model.received) == 3


@async_test(120)
async def test_of_two_processes_that_resume_a_run_at_once_only_one_runs_it(project: AgentProject) -> None:
    never, rest = asyncio.Event(), asyncio.Event()
    async with serve_scripted([wait(never)], [wait(rest), say("one")]) as model:
        project.write(model)
        async with start_command(project, "run", "--durable", "First") as first:
            await first.wait_run_id()
            await wait_model_requests(model, 1)
            await first.wait_exit(signal.SIGKILL)
        async with (
            start_command(project, "runs", "resume", "--last") as one,
            start_command(project, "runs", "resume", "--last") as two,
        ):
            await wait_model_requests(model, 2)
            ended = [asyncio.ensure_future(each.wait_exit()) for each in (one, two)]
            await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            rest.set()
            results = sorted([await each for each in ended])
    assert [result[:2] for result in results] == [(0, "one\n"), (1, "")]
    assert len(model.received) == 2


@async_test(120)
async def test_what_is_in_the_way_of_going_on_is_said(project: AgentProject) -> None:
    never = asyncio.Event()
    async with serve_scripted([wait(never)], say("Well.")) as model:
        project.write(model)
        async with start_command(project, "run", "--durable", "Hello") as first:
            run_id = await first.wait_run_id()
            await wait_model_requests(model, 1)
            await first.wait_exit(signal.SIGKILL)
        with run_database(project) as connection:
            connection.execute("UPDATE workflow_status SET application_version = 'holodeck-0 x'")
        older = await project.run_holodeck("runs", "resume", run_id)
        assert (older.returncode, "was begun by another version of HoloDeck" in older.stderr) == (1, True)
        with run_database(project) as connection:
            connection.execute("UPDATE workflow_status SET application_version = ?", (f"holodeck-1 {run_id}",))
        file = project.path / "agent.yaml"
        text = file.read_text()
        file.unlink()
        gone = await project.run_holodeck("runs", "resume", run_id)
        assert (gone.returncode, "Put it back to go on with the run." in gone.stderr) == (1, True)
        file.write_text(text.replace("name: demo", "name: other"))
        other = await project.run_holodeck("runs", "resume", run_id)
        assert (other.returncode, f"{run_id} is a run of 'demo'" in other.stderr) == (1, True)
        file.write_text(text + "toolz: []\n")
        assert (await project.run_holodeck("runs", "resume", run_id)).returncode == 2
        file.write_text(text + "max_turns: 3\n")
        changed = await project.run_holodeck("runs", "resume", run_id)
        assert (changed.returncode, changed.stdout) == (0, "Well.\n"), changed.stderr
        assert "has changed since this run began" in changed.stderr
        ended = await project.run_holodeck("runs", "resume", run_id)
        assert f"{run_id} has ended: completed. See: holodeck runs show {run_id}" in ended.stderr


@async_test(120)
async def test_show_tells_each_step_with_its_time_and_the_end(project: AgentProject) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("It is 3."), status(401)) as model:
        project.write(model, project.npx_server("calc"))
        await project.run_holodeck("run", "--durable", "-q", "What is 1 + 2?")
        failed = await project.run_holodeck("run", "--durable", "-q", "Again")
        assert failed.returncode == 1
        worse, good = await list_runs(project)
        assert (worse["status"], good["status"], good["agent"]) == ("failed", "completed", "demo")
        shown = (await project.run_holodeck("runs", "show", good["id"])).stdout
        for words in (
            good["id"],
            "What is 1 + 2?",
            "turn 1  asks for add",
            "add  {",
            "turn 2  It is 3.",
            "\nIt is 3.\n",
        ):
            assert words in shown
        data = json.loads((await project.run_holodeck("runs", "show", "--json", good["id"])).stdout)
        assert [(step["kind"], step["name"], step["status"]) for step in data["history"]] == [
            ("turn", "1", "done"),
            ("call", "add", "done"),
            ("turn", "2", "done"),
        ]
        assert (data["answer"], data["history"][1]["said"]) == ("It is 3.", "3")
        shown = (await project.run_holodeck("runs", "show", "--last")).stdout
        assert worse["id"] in shown
        assert "failed: Model 'scripted'" in shown
        table = (await project.run_holodeck("runs", "list")).stdout
        assert "QUESTION" in table
        assert good["id"] in table


@async_test(120)
async def test_an_interrupted_run_is_cancelled_and_an_unknown_one_is_not_found(project: AgentProject) -> None:
    nothing = await project.run_holodeck("runs", "list")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "There are no durable runs yet." in nothing.stderr
    assert (await project.run_holodeck("runs", "list", "--json")).stdout == "[]\n"
    never = asyncio.Event()
    async with serve_scripted([wait(never)]) as model:
        project.write(model)
        async with start_command(project, "run", "--durable", "Hello") as first:
            run_id = await first.wait_run_id()
            await wait_model_requests(model, 1)
            await first.wait_exit(signal.SIGKILL)
        done = await project.run_holodeck("runs", "cancel", run_id)
        assert (done.returncode, done.stderr) == (0, f"{run_id} is cancelled.\n")
        (found,) = await list_runs(project)
        assert found["status"] == "cancelled"
    for args in (("show", "run_x"), ("cancel", "run_x"), ("resume", "run_x")):
        missing = await project.run_holodeck("runs", *args)
        assert (missing.returncode, missing.stderr) == (1, "Error: There is no run 'run_x'. See: holodeck runs list\n")
    assert (await project.run_holodeck("runs", "resume")).returncode == 2


@pytest.mark.proves("D-16")
@async_test(120)
async def test_an_unanswered_question_is_shown_again_after_resuming(project: AgentProject) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("It is 3.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "--durable", "What is 1 + 2?", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("May calc.add run with these arguments?")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Left after 1 step. Go on with: holodeck runs resume run_")
            assert await terminal.wait_exit() == 130
            assert "A call is under way" not in terminal.text, "a person who thinks is not waited for"
        assert calls(project) == []
        async with TypingTerminal("runs", "resume", "--last", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("May calc.add run with these arguments?")
            terminal.type_text("y\r")
            await terminal.wait_for("It is 3.")
            assert await terminal.wait_exit() == 0
        assert messages_of_turn(model, 1)[-1]["content"] == "3"
    assert calls(project) == [{"a": 1, "b": 2}]


@async_test(120)
async def test_a_refused_approval_is_not_requested_again_after_resuming(project: AgentProject) -> None:
    never = asyncio.Event()
    async with serve_scripted(call("add", a=1, b=2), [wait(never)], say("As you wish.")) as model:
        project.write(model, project.npx_server("calc", more=", approval: always"))
        async with TypingTerminal("run", "--durable", "What is 1 + 2?", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("May calc.add run with these arguments?")
            terminal.type_text("n\r")
            await wait_model_requests(model, 2)
            terminal.process.kill()
            await terminal.wait_exit()
        done = await project.run_holodeck("runs", "resume", "--last")
        assert (done.returncode, done.stdout) == (0, "As you wish.\n"), done.stderr
        assert "The person did not approve this call" in messages_of_turn(model, 2)[-1]["content"]
    assert calls(project) == []


@async_test(120)
async def test_functions_of_the_project_are_not_called_again(project: AgentProject) -> None:
    never = asyncio.Event()
    project.path.joinpath("mark.py").write_text(
        'def mark(word: str) -> str:\n    open("marks", "a").write(word + "\\n")\n    return f"marked {word}"\n'
    )
    async with serve_scripted(call("mark", word="one"), [wait(never)], say("Done.")) as model:
        project.write(model, "  - {type: function, name: mark, description: d, file: mark.py, function: mark}")
        async with start_command(project, "run", "--durable", "Mark one") as first:
            await first.wait_run_id()
            await wait_model_requests(model, 2)
            await first.wait_exit(signal.SIGKILL)
        done = await project.run_holodeck("runs", "resume", "--last")
        assert done.stdout == "Done.\n", done.stderr
        assert messages_of_turn(model, 2)[-1]["content"] == "marked one"
    assert (project.path / "marks").read_text() == "one\n"


@async_test(120)
async def test_ended_runs_are_forgotten_after_thirty_days(project: AgentProject) -> None:
    async with serve_scripted(say("Old."), say("New.")) as model:
        project.write(model)
        project.env["HOLODECK_STATE"] = str(project.path / "kept")
        await project.run_holodeck("run", "--durable", "First")
        with run_database(project) as connection:
            connection.execute("UPDATE workflow_status SET completed_at = completed_at - ?", (31 * 86_400_000,))
        await project.run_holodeck("run", "--durable", "Second")
        assert [run["question"] for run in await list_runs(project)] == ["Second"]
    assert (project.path / "kept" / "runs.db").stat().st_mode & 0o077 == 0, "questions and answers are nobody else's"


@async_test(60)
async def test_without_the_extra_it_is_named(project: AgentProject, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['dbos'] = None\n")
    project.env["PYTHONPATH"] = str(tmp_path)
    project.write(None)
    for args in (["run", "--durable", "Hello"], ["runs", "list"], ["runs", "resume", "--last"]):
        done = await project.run_holodeck(*args)
        assert (done.returncode, done.stdout) == (2, "")
        assert "[durable]'" in done.stderr
        assert "Traceback" not in done.stderr
    assert (await project.run_holodeck("run", "-q", "Hello")).returncode == 0


@async_test(60)
async def test_help_names_the_commands_and_imports_no_engine(project: AgentProject) -> None:
    done = await project.run_holodeck("runs", "--help")
    for words in ("list", "show", "resume", "cancel", "holodeck runs resume --last"):
        assert words in done.stdout
    for name in ("list", "show", "resume", "cancel"):
        assert "Example" in (await project.run_holodeck("runs", name, "--help")).stdout


@async_test(120)
async def test_a_second_ctrl_c_does_not_wait_for_a_call(project: AgentProject) -> None:
    async with serve_scripted(call("slow", seconds=60), say("I will look first.")) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "--durable", "Do it", cwd=project.path, env=project.env) as terminal:
            await Journal(project.journal).received("tools/call", within=30)
            terminal.type_text(CTRL_C)
            await terminal.wait_for("A call is under way: it has 5 s to end. Ctrl-C again: do not wait.")
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Left after 1 step. Go on with: holodeck runs resume run_")
            assert await terminal.wait_exit() == 130
            assert "Traceback" not in terminal.text
        done = await project.run_holodeck("runs", "resume", "--last")
        assert (done.returncode, done.stdout) == (0, "I will look first.\n"), done.stderr
    assert len(calls(project)) == 1
    await project.wait_servers_gone()


@async_test(120)
async def test_a_step_that_cannot_be_stored_ends_the_process_and_not_the_run(project: AgentProject) -> None:
    rest = asyncio.Event()
    async with serve_scripted([wait(rest), call("add", a=1, b=2)], call("add", a=3, b=4), say("It is 7.")) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Go") as first:
            run_id = await first.wait_run_id()
            await wait_model_requests(model, 1)
            with run_database(project) as connection:
                connection.execute(
                    "CREATE TRIGGER full BEFORE INSERT ON operation_outputs BEGIN SELECT RAISE(ABORT, 'full'); END"
                )
            rest.set()
            code, out, err = await first.wait_exit()
        assert (code, out) == (1, "")
        assert f"A step could not be kept. Go on later with: holodeck runs resume {run_id}" in err
        assert "Traceback" not in err
        assert calls(project) == [], "what follows a step that is not kept is not done"
        with run_database(project) as connection:
            connection.execute("DROP TRIGGER full")
        done = await project.run_holodeck("runs", "resume", run_id)
        assert (done.returncode, done.stdout) == (0, "It is 7.\n"), done.stderr
    assert calls(project) == [{"a": 3, "b": 4}]


@pytest.mark.proves("D-16", "D-22")
@async_test(120)
async def test_calls_side_by_side_are_each_remembered_in_whatever_order_they_ended(project: AgentProject) -> None:
    many = [call("slow", seconds=seconds) for seconds in (60, 0.3, 0, 0.2, 0, 0.1, 0, 0.4)]
    async with serve_scripted(many, say("Done.")) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Go") as first:
            await first.wait_run_id()
            for number in range(7):
                await first.wait_stderr(r"= calc.slow" + r"[\s\S]*= calc.slow" * number)
            await first.wait_exit(signal.SIGKILL)
        done = await project.run_holodeck("runs", "resume", "--last")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        outputs = [message["content"] for message in messages_of_turn(model, 1) if message["role"] == "tool"]
        assert "Whether the call took effect is unknown" in outputs[0]
        assert len(outputs) == 8
        assert not any("unknown" in content for content in outputs[1:])
    assert len(calls(project)) == 8


@async_test(120)
async def test_a_run_as_earlier_versions_stored_it_is_shown_and_goes_on(project: AgentProject) -> None:
    never = asyncio.Event()
    async with serve_scripted(call("add", a=1, b=2), [wait(never)], say("It is 3.")) as model:
        project.write(model, project.npx_server("calc"))
        async with start_command(project, "run", "--durable", "Add 1 and 2") as first:
            run_id = await first.wait_run_id()
            await wait_model_requests(model, 2)
            await first.wait_exit(signal.SIGKILL)
        with run_database(project) as connection:
            # One question without a history, and a version and an application for each run.
            (stored,) = connection.execute("SELECT inputs FROM workflow_input").fetchone()
            values = json.loads(stored)
            (values["args"][1]["question"],) = values["args"][1]["question"]
            del values["args"][1]["history"]
            connection.execute("UPDATE workflow_input SET inputs = ?", (json.dumps(values),))
            connection.execute(
                "UPDATE workflow_status SET application_version = ?, application_name = ?",
                (f"holodeck-1 {run_id}", f"holodeck-{run_id}"),
            )
        (found,) = await list_runs(project)
        assert (found["question"], found["status"]) == ("Add 1 and 2", "interrupted")
        done = await project.run_holodeck("runs", "resume", run_id)
        assert (done.returncode, done.stdout) == (0, "It is 3.\n"), done.stderr
    assert calls(project) == [{"a": 1, "b": 2}]
