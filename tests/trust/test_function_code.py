"""The Python code that runs is the code that was there when the agent file was read."""

from __future__ import annotations

import importlib.util
import py_compile
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_folder import AgentFolder
from async_tests import async_test
from engine.scripted_agent import tool_outputs

from holodeck.config.agent_loader import LoadedAgent
from holodeck.runtime import build_runner
from holodeck.testing import ScriptedModel, call, say

AGENT = "name: demo\ntools: [{type: function, name: greet, description: d, file: tools.py, function: greet}]\n"
FUNCTION = "from helpers.words import WORD\n\ndef greet() -> str:\n    return WORD\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[AgentFolder]:
    """A project whose function imports a module of a package beside it."""
    before, path = set(sys.modules), list(sys.path)
    project = AgentFolder(tmp_path)
    project.write("tools.py", FUNCTION)
    project.write("helpers/words.py", "WORD = 'as it was'\n")
    project.write("agent.yaml", AGENT)
    yield project
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


async def greeting(folder: AgentFolder) -> str:
    """What the function answers to the model."""
    return await answer_of(folder.load())


async def answer_of(loaded: LoadedAgent) -> str:
    """What the function answers to the model, or the error of the run."""
    model = ScriptedModel(call("greet"), say("done"))
    async with build_runner(loaded, model=model, environ={}) as agent:
        result = await agent.run("Go")
    if result.error is not None:
        return str(result.error)
    [(text, _)] = tool_outputs(model.requests[-1]).values()
    return text


@async_test(60)
async def test_a_function_and_the_modules_of_its_folder_are_imported(folder: AgentFolder) -> None:
    assert "as it was" in await greeting(folder)


@pytest.mark.parametrize("changed", ["tools.py", "helpers/words.py"])
@async_test(60)
async def test_a_file_that_changes_after_the_agent_file_was_read_is_not_run(folder: AgentFolder, changed: str) -> None:
    loaded = folder.load()
    marker = folder.home / "was-run"
    folder.write(changed, f"open({str(marker)!r}, 'w')\nWORD = 'other'\ndef greet(): return 'other'\n")
    assert "has changed since the agent file was read" in await answer_of(loaded)
    assert not marker.exists()


@async_test(60)
async def test_a_module_that_appears_after_the_agent_file_was_read_is_not_run(folder: AgentFolder) -> None:
    folder.write("tools.py", "import this_is_new\n\ndef greet() -> str:\n    return 'x'\n")
    loaded = folder.load()
    marker = folder.home / "was-run"
    folder.write("this_is_new.py", f"open({str(marker)!r}, 'w')\n")
    assert "was not there when the agent file was read" in await answer_of(loaded)
    assert not marker.exists()


@async_test(60)
async def test_a_compiled_file_in_the_folder_is_never_run(folder: AgentFolder) -> None:
    """A `.pyc` that claims to need no check would otherwise run instead of the source that a person has read."""
    marker = folder.home / "was-run"
    words = folder.path / "helpers" / "words.py"
    other = folder.write("other.py", f"open({str(marker)!r}, 'w')\nWORD = 'other'\n")
    compiled = Path(importlib.util.cache_from_source(str(words)))
    py_compile.compile(str(other), cfile=str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    other.unlink()
    assert "as it was" in await greeting(folder)
    assert not marker.exists()


@async_test(60)
async def test_an_environment_inside_the_folder_is_imported_as_always(folder: AgentFolder) -> None:
    site = folder.path / ".venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed_there.py").write_text("WORD = 'from the environment'\n")
    folder.write("tools.py", FUNCTION.replace("helpers.words", "installed_there"))
    sys.path.append(str(site))
    assert "from the environment" in await greeting(folder)


def test_a_folder_with_thousands_of_python_files_is_refused(folder: AgentFolder) -> None:
    package = folder.path / "many"
    package.mkdir()
    for number in range(2001):
        (package / f"m{number}.py").touch()
    [problem] = folder.load_errors()
    assert (problem.key, "a folder of their own" in problem.fix) == ("tools[0].file", True)
    shutil.rmtree(package)
    assert folder.load()
