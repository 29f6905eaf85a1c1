"""A response is seen as ended only once it is stored, so that the next request can continue from it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from async_tests import async_test
from durable.crash_cases import wait_ended, wait_model_requests
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.testing import ScriptedModel, say, wait


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in the process"])
@async_test(90)
async def test_a_response_that_is_seen_as_completed_can_be_continued(tmp_path: Path, is_durable: bool) -> None:
    answer = asyncio.Event()
    async with ScriptedModel([wait(answer), say("One.")], say("Two.")).serve() as model:
        file = write_gateway_file(tmp_path, model.url, background={"durable": is_durable})
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True)
            await wait_model_requests(model, 1)
            with closing(sqlite3.connect(tmp_path / "holodeck.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                answer.set()
                ended = asyncio.create_task(wait_ended(served, made["id"]))
                # As long as nothing can be stored, it is not seen as ended, however often it is retrieved.
                await asyncio.wait({ended}, timeout=1)
                assert not ended.done()
                other.execute("COMMIT")
            assert (await ended)["status"] == "completed"
            status, last, _ = await served.create_response("And?", previous_response_id=made["id"])
            assert (status, last["status"]) == (200, "completed")
    assert [message["content"] for message in model.received[-1].json["messages"]] == ["hi", "One.", "And?"]
