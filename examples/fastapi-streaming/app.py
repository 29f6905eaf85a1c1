"""A web application that streams the answers of an agent: `uvicorn app:app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from holodeck import Agent


def roll(sides: int = 6) -> str:
    """Roll a die."""
    return f"a die with {sides} sides shows 4"


agent = Agent("rehearsal", instructions="Answer in one sentence.", tools=[roll])


@asynccontextmanager
async def open_agent(app: FastAPI) -> AsyncIterator[None]:
    """Keep the agent's connections and servers open while the application runs."""
    async with agent:
        app.state.agent = agent
        yield


class Question(BaseModel):
    text: str


def find_agent(request: Request) -> Agent:
    return request.app.state.agent


app = FastAPI(lifespan=open_agent)


@app.post("/ask")
async def ask(question: Question, agent: Agent = Depends(find_agent)) -> StreamingResponse:  # noqa: B008
    async def stream_text() -> AsyncIterator[str]:
        # A client that leaves closes this generator, and that cancels the run.
        async for event in agent.stream(question.text):
            if event.type == "text.added":
                yield event.text
            elif event.type == "run.finished" and event.result.error:
                yield f"\n[{event.result.error.message}]"

    return StreamingResponse(stream_text(), media_type="text/plain; charset=utf-8")
