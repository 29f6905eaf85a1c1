"""A model of your own: any object with a name, `stream` and `close` will do."""

import asyncio
from collections.abc import AsyncGenerator

import holodeck
from holodeck import Message, ModelAnswer, ModelEvent, ModelRequest, TextContent, TextDelta


class ShoutingModel:
    """Repeats the last message, loudly. A real one would send the request to a service here."""

    name = "shouting"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        text = request.items[-1].content[0].text.upper() + "!"
        yield TextDelta(text=text)
        yield ModelAnswer(items=(Message(role="assistant", content=(TextContent(text=text),)),), finish="stop")

    async def close(self) -> None:
        pass


async def main() -> None:
    async with holodeck.Agent.from_file("agent.yaml", model=ShoutingModel()) as agent:
        result = await agent.run("good morning")
        print(result.status, result.text)


if __name__ == "__main__":
    asyncio.run(main())
