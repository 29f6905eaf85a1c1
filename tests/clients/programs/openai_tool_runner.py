"""The tool runner of the `openai` package, which runs functions of the program by itself.

It accepts calls of MCP servers only where the request declares them, so this program names the operator's server.
"""

from __future__ import annotations

from typing import Any

from client_program import API_KEY, BASE_URL, MODEL, ask_all, get_time
from openai import AsyncOpenAI
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner

PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
FUNCTION: Any = {
    "type": "function",
    "name": "get_time",
    "description": "Get the time at a place.",
    "parameters": {**PLACE, "additionalProperties": False},
    "strict": True,
}
SERVER: Any = {"type": "mcp", "server_label": "sums", "require_approval": "never"}
client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)


async def _execute(arguments: dict[str, Any]) -> str:
    return get_time(**arguments)


async def ask(question: str) -> str:
    return await _run(question, is_streamed=False)


async def ask_streamed(question: str) -> str:
    return await _run(question, is_streamed=True)


async def _run(question: str, *, is_streamed: bool) -> str:
    runner = AsyncResponsesToolRunner(functions=[AsyncRegisteredFunction(FUNCTION, _execute)])
    params: Any = {"model": MODEL, "input": question, "tools": [SERVER]}
    response = await runner.run(client, params, max_steps=5, stream=is_streamed)
    return response.output_text


ask_all(ask, ask_streamed)
