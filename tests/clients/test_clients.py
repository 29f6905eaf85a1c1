"""The most used clients, each with a function of its own beside the operator's tool. `make clients` tries more."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from async_tests import async_test
from clients.run import PROGRAMS, run_program, wrong_answers
from clients.scripted_conversation import run_scripted_gateway
from gateway.client_environments import node_folder, python_with


def _node_command(folder: Path, program: str) -> list[str]:
    node = shutil.which("node")
    assert node is not None
    # Node looks for packages beside the program.
    (folder / "node_modules").symlink_to(node_folder() / "node_modules")
    for name in ("client_program.mjs", program):
        shutil.copy(PROGRAMS / name, folder)
    return [node, str(folder / program)]


def _python_command(python: Path | str, program: str) -> list[str]:
    return [str(python), str(PROGRAMS / program)]


# The command of each client. Programs for Node are copied to the folder.
COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "openai for Python": lambda _: _python_command(sys.executable, "openai_python.py"),
    "openai for JavaScript": lambda folder: _node_command(folder, "openai_node.mjs"),
    "openai for Python, chat": lambda _: _python_command(sys.executable, "openai_chat.py"),
    "openai-agents": lambda _: _python_command(python_with("openai-agents"), "openai_agents_python.py"),
    "AI SDK": lambda folder: _node_command(folder, "ai_sdk.mjs"),
    "LangChain for Python": lambda _: _python_command(python_with("langchain"), "langchain_python.py"),
}


# Those whose packages are here already; the others are installed first.
IN_EACH_RUN = {"openai for Python", "openai for Python, chat"}
CASES = [pytest.param(name, marks=() if name in IN_EACH_RUN else pytest.mark.long) for name in COMMANDS]


@pytest.mark.proves("D-25", "D-26", "D-23")
@pytest.mark.parametrize("client", CASES)
def test_a_client_uses_its_own_function_and_the_operator_s_tool(tmp_path: Path, client: str) -> None:
    command = COMMANDS[client](tmp_path)

    @async_test(300)
    async def ask() -> None:
        async with run_scripted_gateway(tmp_path) as base_url:
            assert wrong_answers(await run_program(command, base_url)) == {}

    ask()
