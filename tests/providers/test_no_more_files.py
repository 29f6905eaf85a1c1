"""A process that can open no more connections says so, and does not take the model for broken."""

from __future__ import annotations

import pytest
from providers.asking import model_at
from providers.raw_server import Peer, answer, both_loops, serving, words
from scarcity import no_more_files

from holodeck.lib.errors import ModelError
from holodeck.providers.breaker import Breaker
from holodeck.providers.retrying import Retrying


async def hello(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(answer("hello"))


@both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_lack_of_files_is_told_and_is_not_the_models_fault(host: str) -> None:
    async with serving(hello) as server:
        first, model = model_at(server.url), Breaker(model_at(f"http://{host}:{server.port}/v1"), failures=2)
        assert await words(first) == "hello"
        with no_more_files():
            for _ in range(4):
                with pytest.raises(ModelError, match="it was not asked: this machine has too many files") as found:
                    await words(model)
                assert (found.value.is_retryable, found.value.retry_after) == (True, 1)
        assert not model.is_open
        assert await words(model) == "hello"
        await first.close()
        await model.close()


@both_loops
async def test_it_is_asked_again_when_there_is_room() -> None:
    async with serving(hello) as server:
        first = model_at(server.url)
        assert await words(first) == "hello"
        shortage = no_more_files()

        async def room(seconds: float) -> None:
            shortage.__exit__(None, None, None)

        model = Retrying(model_at(server.url), sleep=room)
        shortage.__enter__()
        assert await words(model) == "hello"
        await first.close()
        await model.close()
