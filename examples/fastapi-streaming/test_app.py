"""The application over real HTTP, with a model that follows a script."""

import asyncio
import json
import queue
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from app import agent, app, find_agent

from holodeck import Agent
from holodeck.testing import ScriptedModel, call, fail, say, wait


@contextmanager
def serve(tested: Agent) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    """The URL of the application with this agent, at a free port, and the event loop that it runs in."""
    app.dependency_overrides[find_agent] = lambda: tested
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    loops: queue.Queue[asyncio.AbstractEventLoop] = queue.Queue()
    start = server.startup

    async def start_and_tell(sockets: list | None = None) -> None:
        await start(sockets)
        loops.put(asyncio.get_running_loop())

    server.startup = start_and_tell
    thread = threading.Thread(target=server.run)
    thread.start()
    loop = loops.get()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/ask", loop
    finally:
        server.should_exit = True
        thread.join()


def post(url: str, text: str) -> urllib.request.Request:
    return urllib.request.Request(url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})


def test_the_answer_is_streamed_while_the_model_still_writes() -> None:
    go_on = asyncio.Event()
    model = ScriptedModel(call("roll", sides=20), [say("It shows "), wait(go_on), say("four.")])
    with serve(agent.with_(model=model)) as (url, loop), urllib.request.urlopen(post(url, "Roll!")) as answer:
        assert answer.read(9) == b"It shows "
        loop.call_soon_threadsafe(go_on.set)
        assert answer.read() == b"four."
    assert "20 sides" in str(model.requests[1].items[-1])


def test_a_failure_is_told() -> None:
    model = ScriptedModel(fail("the model is overloaded"))
    with serve(agent.with_(model=model)) as (url, _), urllib.request.urlopen(post(url, "Roll!")) as answer:
        assert answer.read() == b"\n[the model is overloaded]"
