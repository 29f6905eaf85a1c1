"""Functions of a project in a gateway: one that exits, hangs or fails affects only its own call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file

from holodeck.testing import ScriptedModel, call, say

CODE = """
import sys, threading

def leaves(): sys.exit(3)

async def leaves_later(): sys.exit("enough")

def iterates(): raise StopIteration

def interrupts(): raise KeyboardInterrupt

def hurries(): raise TimeoutError("the shop is closed")

def hangs(): threading.Event().wait()

def greets(): return "hello"
"""
MORE_THAN_A_POOL_HAS = 40


def project(folder: Path, endpoint: str, *names: str, code: str = CODE) -> Path:
    """A gateway with an agent `helper` that has these functions."""
    (folder / "mine.py").write_text(code)
    model = {"provider": "openai_compatible", "name": "scripted", "endpoint": endpoint}
    tools = [
        {"type": "function", "name": name, "file": "mine.py", "function": name, "request_timeout": 1} for name in names
    ]
    agent = {"name": "helper", "model": model, "tools": tools}
    (folder / "agent.yaml").write_bytes(orjson.dumps(agent))
    return write_gateway_file(folder, endpoint, agents=[{"file": "agent.yaml"}])


async def list_call_outputs(served: GatewayProcess) -> list[Any]:
    """Create a response and return the outputs of its function calls."""
    status, answer, _ = await served.create_response(model="helper")
    assert status == 200, answer
    calls = [item for item in answer["output"] if item["type"] == "mcp_call"]
    return [item["error"]["content"][0]["text"] if item["error"] else item["output"] for item in calls]


@async_test(90)
async def test_a_function_that_exits_ends_its_call_and_not_the_gateway(tmp_path: Path) -> None:
    names = ("leaves", "leaves_later", "iterates", "interrupts", "hurries")
    async with (
        ScriptedModel([call(name) for name in names], say("ok"), say("still here")).serve() as scripted,
        run_gateway_process(project(tmp_path, scripted.url, *names)) as served,
    ):
        assert await list_call_outputs(served) == [
            "The function 'leaves' failed: SystemExit: 3",
            "The function 'leaves_later' failed: SystemExit: enough",
            "The function 'iterates' failed: RuntimeError: StopIteration",
            "The function 'interrupts' failed: RuntimeError: KeyboardInterrupt",
            "The function 'hurries' failed: TimeoutError: the shop is closed",
        ]
        assert (await served.create_response())[0] == 200


@async_test(90)
async def test_a_file_that_exits_when_it_is_imported_does_not_end_the_gateway(tmp_path: Path) -> None:
    async with ScriptedModel(say("still here")).serve() as scripted:
        file = project(tmp_path, scripted.url, "greets", code="import sys\ndef greets(): ...\nsys.exit(1)\n")
        async with run_gateway_process(file) as served:
            status, answer, _ = await served.create_response(model="helper")
            assert (status, "mine.py" in str(answer)) == (500, False), answer
            assert (await served.create_response())[0] == 200
            served.stop()
            await served.wait_exit()
    assert "mine.py cannot be imported: SystemExit: 1" in "".join(served.stderr_lines)


@async_test(90)
async def test_hanging_functions_block_neither_other_calls_nor_the_shutdown(tmp_path: Path) -> None:
    turns = [call("hangs")] * MORE_THAN_A_POOL_HAS, say("ok"), call("greets"), say("ok")
    async with (
        ScriptedModel(*turns).serve() as scripted,
        run_gateway_process(project(tmp_path, scripted.url, "hangs", "greets")) as served,
    ):
        hung = await list_call_outputs(served)
        assert hung == ["The function 'hangs' took longer than 1 seconds."] * MORE_THAN_A_POOL_HAS
        assert await list_call_outputs(served) == ["hello"]
        served.stop()
        assert await served.wait_exit() == 0


LOUD = """
import sys
print("at import")

def loud():
    print("in a function", 1)
    print("two\\nlines")
    sys.stdout.write("x" * 100_000 + "\\n")
    return "done"

async def loud_later():
    print("in a coroutine")
"""


@async_test(90)
async def test_with_json_logs_printed_text_is_a_log_line_of_its_request(tmp_path: Path) -> None:
    turns = [call("loud"), call("loud_later")], say("ok")
    async with ScriptedModel(*turns).serve() as scripted:
        file = project(tmp_path, scripted.url, "loud", "loud_later", code=LOUD)
        async with run_gateway_process(file, "--log-format", "json") as served:
            assert served.process.stdout is not None
            status, _, headers = await served.create_response(model="helper")
            served.stop()
            output = await served.process.stdout.read()
            await served.wait_exit()
    assert (status, output) == (200, b"")
    lines = [orjson.loads(line) for line in served.stderr_lines]
    printed = {line["text"]: line for line in lines if line["event"] == "function.printed"}
    assert {"at import", "in a function 1", "two", "lines", "in a coroutine"} < printed.keys()
    assert all(len(text) < 20_000 for text in printed)
    for text in ("in a function 1", "in a coroutine"):
        assert printed[text]["request"] == headers["x-request-id"]


@async_test(90)
async def test_with_text_logs_printed_text_is_on_stdout_at_once(tmp_path: Path) -> None:
    async with (
        ScriptedModel(call("loud_later"), say("ok")).serve() as scripted,
        run_gateway_process(project(tmp_path, scripted.url, "loud_later", code=LOUD)) as served,
    ):
        assert served.process.stdout is not None
        assert (await served.create_response(model="helper"))[0] == 200
        output = [await served.process.stdout.readline() for _ in range(2)]
        assert output == [b"at import\n", b"in a coroutine\n"]
        assert not any("in a coroutine" in line for line in served.stderr_lines)


@async_test(90)
async def test_files_are_imported_once_before_the_gateway_serves(tmp_path: Path) -> None:
    async with ScriptedModel(say("ok")).serve() as scripted:
        file = project(tmp_path, scripted.url, "loud", code=LOUD)
        async with run_gateway_process(file, "--log-format", "json") as served:
            events = [orjson.loads(line)["event"] for line in served.stderr_lines]
            assert events.index("function.printed") < events.index("gateway.serving")
            assert (await served.create_response(model="helper"))[0] == 200
    assert sum("at import" in line for line in served.stderr_lines) == 1


@async_test(90)
async def test_a_file_that_cannot_be_imported_is_logged_at_the_start_and_not_imported_again(
    tmp_path: Path,
) -> None:
    async with ScriptedModel(say("still here")).serve() as scripted:
        file = project(tmp_path, scripted.url, "loud", code=f"{LOUD}\nraise OSError('no disk')\n")
        async with run_gateway_process(file, "--log-format", "json") as served:
            assert "mine.py cannot be imported: OSError: no disk" in "".join(served.stderr_lines)
            for _ in range(2):
                status, answer, _ = await served.create_response(model="helper")
                assert (status, "no disk" in str(answer)) == (500, False), "the log is for the operator"
            assert (await served.create_response())[0] == 200
    assert sum("at import" in line for line in served.stderr_lines) == 1
