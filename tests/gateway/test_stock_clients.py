"""Stock client packages, unchanged and in several versions, against a gateway."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from clients.run import PROGRAMS
from clients.scripted_conversation import run_scripted_gateway
from gateway.client_environments import CLIENTS, node_folder, python_with
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import PromptCache, ScriptedModel, call, say, spend
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

EXPECTED = {
    "create": "It is 3.",
    "stream": "It is 3.",
    "final": "It is 3.",
    "retrieve": "It is 3.",
    "continue": "I was told 5.",
    "cancelled": "cancelled",
    "conversation": "I was told 2.",
    "chat": "It is 3.",
    "chat_stream": "It is 3.",
}
IN_PYTHON = {
    **EXPECTED,
    "parse": 3,
    "input_items": ["sum"],
    "asking": ["McpListTools", "McpApprovalRequest"],
    "approved": ["mcp_call", "message"],
    "resumed": "It is 3.",
    "gapless": True,
    "listed": ["message", "message", "message"],
    "forgotten": True,
    "models": [MODEL],
}


def _answer(received: Received) -> Turn:
    messages = received.json["messages"]
    match messages[-1]["content"]:
        case result if messages[-1]["role"] == "tool":
            return say(f"It is {result}.")
        case "sum":
            return call("add", a=1, b=2)
        case "slow":
            return call("slow", seconds=60)
        case "json":
            return say('{"total": 3}')
        case "time":
            return call("get_time", place="Rome")
    return say(f"I was told {len(messages)}.")


async def _run(*command: Path | str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(*[str(part) for part in command], stdout=PIPE, stderr=PIPE)
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0, err.decode()
    printed: dict[str, Any] = json.loads(out)
    return printed


@pytest.mark.long
@pytest.mark.proves("D-25", "D-26")
@pytest.mark.parametrize("lock", ["openai-1", "openai-2", "newest"])
def test_every_version_of_the_python_package_works_unchanged(tmp_path: Path, lock: str) -> None:
    python = Path(sys.executable) if lock == "newest" else python_with(lock)

    @async_test(300)
    async def use() -> None:
        async with run_scripted_gateway(tmp_path, _answer) as url:
            seen = await _run(python, CLIENTS / "exercise.py", url, MODEL)
        assert seen.pop("version").startswith({"openai-1": "1.", "openai-2": "2."}.get(lock, "3."))
        if lock != "openai-1":  # the first that has it is the second
            assert seen.pop("connect") == "It is 3."
        assert seen == IN_PYTHON

    use()


@pytest.mark.long
@pytest.mark.proves("D-25")
def test_the_npm_package_works_unchanged(tmp_path: Path) -> None:
    folder, node = node_folder(), shutil.which("node")
    assert node is not None

    @async_test(300)
    async def use() -> None:
        async with run_scripted_gateway(tmp_path, _answer) as url:
            seen = await _run(node, folder / "exercise.mjs", url, MODEL)
        assert seen.pop("refused") == [400, "input[0].type"]
        assert seen == EXPECTED

    use()


@pytest.mark.long
@pytest.mark.proves("D-25", "D-23")
def test_agents_of_openai_s_own_package_use_their_functions_and_the_gateway_s_tools(tmp_path: Path) -> None:
    python = python_with("openai-agents")

    @async_test(300)
    async def use() -> None:
        # This package takes every function_call for one of its own, so it is shown the gateway's in OpenAI's form.
        async with run_scripted_gateway(tmp_path, _answer) as url:
            seen = await _run(python, CLIENTS / "agents_exercise.py", url, MODEL)
        time = "It is noon in Rome."
        assert seen == {
            "responses": time,
            "responses_streamed": "It is 3.",
            "socket": time,
            "socket_streamed": "It is 3.",
            "chat": time,
            "chat_streamed": "It is 3.",
        }

    use()


@pytest.mark.long
@pytest.mark.proves("D-25")
@pytest.mark.parametrize("how", ["plain", "marked", "runner"])
def test_ten_turns_of_anthropic_s_own_package_are_read_from_the_cache(tmp_path: Path, how: str) -> None:
    """With marks of its own, without, and where it runs the tools itself. Its usage is what the provider billed."""
    python, cache, turns = python_with("anthropic"), PromptCache(minimum=512), 10
    calls = [[call(f"look_up_{number}", number=number), spend(0, 50)] for number in range(turns - 1)]

    @async_test(300)
    async def use() -> None:
        model = ScriptedModel(*calls, [say("Everywhere."), spend(0, 50)])
        async with run_gateway(tmp_path, model, dialect="anthropic", prompt_cache=cache) as gateway:
            seen = await _run(python, PROGRAMS / "anthropic_turns.py", f"{gateway.url}/v1", MODEL, how)
            marks = {json.dumps(body).count('"cache_control"') for body in gateway.model_requests}
        assert (seen["version"].split(".")[0], seen["answer"], set(seen["models"])) == ("2", "Everywhere.", {MODEL})
        assert marks == {3} if how == "marked" else marks <= {3, 4}
        assert len(cache.billed) == turns
        for said, billed in zip(seen["usages"], cache.billed, strict=True):
            assert said["cache_read_input_tokens"] == billed.cached_tokens
            assert said["cache_creation_input_tokens"] == billed.cache_write_tokens
            assert said["input_tokens"] == billed.input_tokens - billed.cached_tokens - billed.cache_write_tokens
            assert said["output_tokens"] == 50
        for billed in cache.billed[1:]:
            assert billed.cached_tokens >= 0.9 * billed.input_tokens

    use()
