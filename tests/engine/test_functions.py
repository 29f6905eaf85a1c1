"""Python functions of the project as tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from child_processes import running_children
from engine.scripted_agent import open_agent, tool_outputs

from holodeck.lib.errors import ExecutionError
from holodeck.testing import ScriptedModel, call, say

CODE = '''
import asyncio

def greet(name: str, times: int = 1) -> str:
    """Greet a person."""
    return ", ".join([f"hello {name}"] * times)

async def later(x: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"x": x + 1}

def broken() -> None:
    raise ValueError("not today")

def stuck() -> None:
    import threading
    threading.Event().wait(2)

def nothing() -> None:
    pass

def half() -> str:
    return b"caf\\xe9.txt".decode(errors="surrogateescape")

def half_broken() -> None:
    raise ValueError(half())
'''


def function(name: str, **settings: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "file": "mine.py", "function": name, **settings}


@async_test
async def test_functions_are_described_run_and_answered(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    model = ScriptedModel(
        [call("greet", name="Ada", times=2), call("later", x=1), call("broken"), call("nothing")], say("ok")
    )
    tools = [function(name) for name in ("greet", "later", "broken", "nothing")]
    async with open_agent(tmp_path, model, tools) as agent:
        await agent.run("go")
    (spec,) = [spec for spec in model.requests[0].tools if spec.name == "greet"]
    assert spec.description == "Greet a person."
    assert spec.parameters["required"] == ["name"]
    assert tool_outputs(model.requests[1]) == {
        "call_1": ("hello Ada, hello Ada", False),
        "call_2": ('{"x":2}', False),
        "call_3": ("The function 'broken' failed: ValueError: not today", True),
        "call_4": ("(the function gave an empty answer)", False),
    }


@async_test
async def test_a_name_that_is_not_text_can_still_be_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    model = ScriptedModel([call("half"), call("half_broken")], say("ok"))
    async with open_agent(tmp_path, model, [function("half"), function("half_broken")]) as agent:
        assert (await agent.run("go")).status == "completed"
    assert tool_outputs(model.requests[1]) == {
        "call_1": ("caf?.txt", False),
        "call_2": ("The function 'half_broken' failed: ValueError: caf?.txt", True),
    }


@async_test
async def test_arguments_are_checked_against_the_schema_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    schema = {"type": "object", "properties": {"name": {"enum": ["Ada"]}}, "required": ["name"]}
    model = ScriptedModel([call("greet", name="Bob"), call("greet", name="Ada")], say("ok"))
    async with open_agent(tmp_path, model, [function("greet", parameters=schema)]) as agent:
        await agent.run("go")
    outputs = tool_outputs(model.requests[1])
    assert outputs["call_1"][1]
    assert outputs["call_2"] == ("hello Ada", False)


@async_test
async def test_a_function_that_takes_too_long_fails(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    model = ScriptedModel(call("stuck"), say("ok"))
    async with open_agent(tmp_path, model, [function("stuck", request_timeout=1)]) as agent:
        await agent.run("go")
    assert "longer than 1 seconds" in tool_outputs(model.requests[1])["call_1"][0]


@async_test
async def test_a_file_that_cannot_be_imported_fails_the_run_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import does_not_exist_anywhere\ndef greet(): ...\n")
    async with open_agent(tmp_path, ScriptedModel(say("never")), [function("greet")]) as agent:
        result = await agent.run("go")
    assert result.status == "failed"
    assert result.error is not None
    assert "mine.py cannot be imported" in result.error.message


def test_a_function_that_is_not_there_at_run_time_is_a_sentence(tmp_path: Path) -> None:
    from holodeck.models.tool import FunctionTool
    from holodeck.tools.function import FunctionExecutor

    (tmp_path / "mine.py").write_text("x = 1\n")
    executor = FunctionExecutor([FunctionTool.model_validate(function("x"))], tmp_path)
    with pytest.raises(ExecutionError, match="has no function 'x'"):
        asyncio.run(_specs(executor))


async def _specs(executor: Any) -> Any:
    return await executor.specs()


@async_test
async def test_arguments_are_checked_against_a_costly_schema_in_a_process_that_ends_with_the_agent(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    name = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}}}
    model = ScriptedModel(call("greet", name="ann"), call("greet", name="Ann"), say("Well."))
    async with open_agent(tmp_path, model, [function("greet", parameters=name)]) as agent:
        assert (await agent.run("Go")).text == "Well."
        assert len(running_children("schema_worker_program.py")) == 1
    (refused,), (_, greeted) = (list(tool_outputs(request).values()) for request in model.requests[1:])
    assert (greeted, refused[1]) == (("hello Ann", False), True)
    assert "do not fit the tool: name: " in refused[0]
    assert not running_children("schema_worker_program.py")
