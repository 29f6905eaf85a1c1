"""A gateway with one MCP server and a scripted model that uses its tool and a function of the client.

The question decides which of the two the model calls, and in which order. The final answer repeats every result that
the model received for the question: a result that was lost on the way is missing there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, gateway_config

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, say
from holodeck.testing.model.script import Step, Turn
from holodeck.testing.model.scripted import Received

__all__ = ["EXPECTED", "MODEL", "run_scripted_gateway"]

# For each question the results that the model must be sent, in the order of its calls.
_RESULTS = {
    "own function": ["noon in Rome"],
    "operator's tool": ["3"],
    "tool, then function": ["3", "noon in Rome"],
    "function, then tool": ["noon in Rome", "3"],
    "both in one turn": ["3", "noon in Rome"],
}
EXPECTED = {
    f"{question}{way}": f"Results: {'; '.join(results)}."
    for question, results in _RESULTS.items()
    for way in ("", ", streamed")
}
QUESTIONS = tuple(_RESULTS)


def _answer(received: Received) -> Turn:
    messages = received.json["messages"]
    # Semantic Kernel sends the question again with each result.
    asked = min(index for index, message in enumerate(messages) if _question(message))
    question = _question(messages[asked])
    results = [_text(message) for message in messages[asked:] if message["role"] == "tool"]
    if len(results) == len(_RESULTS[question]):
        return say(f"Results: {'; '.join(results)}.")
    if question == "both in one turn":
        return [_call("3", received), _call("noon in Rome", received)]
    return _call(_RESULTS[question][len(results)], received)


def _question(message: dict[str, Any]) -> str:
    """The question that a message asks; empty: none."""
    if message["role"] != "user":
        return ""
    text = _text(message).strip()
    return next((question for question in QUESTIONS if text.endswith(question)), "")


def _call(result: str, received: Received) -> Step:
    """The call that gives this result."""
    if result == "3":
        return call("add", a=1, b=2)
    offered = {tool["function"]["name"] for tool in received.json["tools"]}
    # Codex and Claude Code bring no function that a program could define, but run commands.
    if "exec_command" in offered:
        return call("exec_command", cmd="printf 'noon in Rome'")
    if "Bash" in offered:
        return call("Bash", command="printf 'noon in Rome'", description="Tell the time")
    return call_raw(next(name for name in offered if name.endswith("get_time")), '{"place":"Rome"}')


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    # Some clients send results as JSON, and Codex adds how the command went.
    if text.startswith('"'):
        text = str(orjson.loads(text))
    return "noon in Rome" if text.endswith("noon in Rome") else text


@asynccontextmanager
async def run_scripted_gateway(folder: Path, answer: Callable[[Received], Turn] = _answer) -> AsyncIterator[str]:
    """Run `holodeck serve` with default settings, and yield its base URL. `answer` gives the turns of the model."""
    async with (
        FaultyMCPServer() as server,
        ScriptedModel(answer, chunk=3).serve() as model,
        run_gateway_process(
            write_gateway_file(folder, model.url, **gateway_config(model.url, {"sums": server}))
        ) as served,
    ):
        yield f"{served.url}/v1"
