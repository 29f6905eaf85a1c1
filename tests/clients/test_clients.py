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


def _npm_program() -> list[str]:
    folder, node = node_folder(), shutil.which("node")
    assert node is not None
    # Node looks for packages beside the program.
    for name in ("client_program.mjs", "openai_node.mjs"):
        shutil.copy(PROGRAMS / name, folder)
    return [node, str(folder / "openai_node.mjs")]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "openai for Python": lambda: [sys.executable, str(PROGRAMS / "openai_python.py")],
    "openai for JavaScript": _npm_program,
    "openai for Python, chat": lambda: [sys.executable, str(PROGRAMS / "openai_chat.py")],
    "openai-agents": lambda: [str(python_with("openai-agents")), str(PROGRAMS / "openai_agents_python.py")],
}


@pytest.mark.proves("D-25", "D-26", "D-23")
@pytest.mark.parametrize("client", COMMANDS)
def test_a_client_uses_its_own_function_and_the_operator_s_tool(tmp_path: Path, client: str) -> None:
    command = COMMANDS[client]()

    @async_test(300)
    async def ask() -> None:
        async with run_scripted_gateway(tmp_path) as base_url:
            assert wrong_answers(await run_program(command, base_url)) == {}

    ask()
