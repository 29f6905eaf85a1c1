"""A process that can open no more connections reports that, and does not count it as a failure of the model."""

from __future__ import annotations

import pytest
from open_file_limit import exhaust_open_files
from providers.model_exchange import model_at
from providers.raw_server import Peer, ask_text, both_loops, http_answer, serve_raw

from holodeck.lib.errors import ModelError
from holodeck.providers.wrappers.guarded import CircuitBreaker, GuardedModel
from holodeck.providers.wrappers.retry import RetryPolicy


async def hello(peer: Peer) -> None:
    while True:
        await peer.read_request()
        await peer.send(http_answer("hello"))


@both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_lack_of_files_is_reported_and_does_not_count_as_a_failure_of_the_model(host: str) -> None:
    async with serve_raw(hello) as server:
        breaker, once = CircuitBreaker(failures=2), RetryPolicy(attempts=1)
        model = GuardedModel(model_at(f"http://{host}:{server.port}/v1"), breaker=breaker, retry=once)
        first = model_at(server.url)
        assert await ask_text(first) == "hello"
        with exhaust_open_files():
            for _ in range(4):
                with pytest.raises(ModelError, match="it was not asked: this machine has too many files") as found:
                    await ask_text(model)
                assert (found.value.is_retryable, found.value.retry_after) == (True, 1)
        assert not model.is_open
        assert await ask_text(model) == "hello"
        await first.close()
        await model.close()


@both_loops
async def test_requests_work_again_when_files_are_free() -> None:
    async with serve_raw(hello) as server:
        first = model_at(server.url)
        assert await ask_text(first) == "hello"
        shortage = exhaust_open_files()

        async def free_files(seconds: float) -> None:
            shortage.__exit__(None, None, None)

        model = GuardedModel(model_at(server.url), retry=RetryPolicy(sleep=free_files))
        shortage.__enter__()
        assert await ask_text(model) == "hello"
        await first.close()
        await model.close()
