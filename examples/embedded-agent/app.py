"""A program with an agent in it: shows what the agent does while it does it."""

import asyncio
import sys
from pathlib import Path

import holodeck


async def main(question: str) -> int:
    async with holodeck.Agent.from_file(Path(__file__).parent / "agent.yaml") as agent:
        async for event in agent.stream(question):
            if event.type == "tool.started":
                print(f"... {event.name}", file=sys.stderr)
            elif event.type == "text.added":
                print(event.text, end="", flush=True)
            elif event.type == "run.finished":
                print()
                return 0 if event.result.status == "completed" else 1
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(" ".join(sys.argv[1:]))))
