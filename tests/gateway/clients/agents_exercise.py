"""An agent of the stock `openai-agents` package with a function of its own, and a gateway that has tools, too.

Runs in an environment that has nothing but that package: `python agents_exercise.py BASE_URL MODEL`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

from openai import AsyncOpenAI

agents: Any = importlib.import_module("agents")  # not in the environment of the type checker, where a test has the name


@agents.function_tool  # type: ignore[untyped-decorator] # its types are not known here
def get_time(place: str) -> str:
    """What time it is somewhere."""
    return f"noon in {place}"


async def main() -> None:
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=sys.argv[1], api_key="hd-anybody", max_retries=0) as client:
        seen = {}
        for name, kind in (
            ("responses", agents.OpenAIResponsesModel),
            ("socket", agents.OpenAIResponsesWSModel),
            ("chat", agents.OpenAIChatCompletionsModel),
        ):
            agent = agents.Agent(name="Clock", model=kind(model=sys.argv[2], openai_client=client), tools=[get_time])
            seen[name] = (await agents.Runner.run(agent, "time")).final_output
            streamed = agents.Runner.run_streamed(agent, "sum")
            async for _ in streamed.stream_events():
                pass
            seen[f"{name}_streamed"] = streamed.final_output
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
