"""Questions of MCP servers in storage: answered once, by their caller, while the gateway that asks is alive."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.storage.elicitations import StoredElicitation
from holodeck.storage.factory import open_store


def build_question(name: str = "elic_1", *, seconds: float = 600.0) -> StoredElicitation:
    now = time.time()
    return StoredElicitation(
        id=name, response_id="resp_1", caller_id="alice", created_at=now, expires_at=now + seconds, question=b'{"a":1}'
    )


@pytest.mark.proves("D-28")
@async_test
async def test_one_of_many_answers_is_stored_and_read_by_the_gateway_that_asks(tmp_path: Path, url: str) -> None:
    asking, other = open_store(url, folder=tmp_path), open_store(url, folder=tmp_path)
    try:
        asked = build_question()
        await asking.elicitations.add_elicitation(asked)
        await asking.elicitations.add_elicitation(asked)
        assert await other.elicitations.list_elicitations("resp_1", "alice") == [asked]
        assert await other.elicitations.list_elicitations("resp_1", "bob") == []
        assert await other.elicitations.list_elicitations("resp_2\0", "alice") == []
        assert not await other.elicitations.answer_elicitation("elic_1", "resp_1", "bob", b'"mine"')
        assert not await other.elicitations.answer_elicitation("elic_1", "resp_2", "alice", b'"elsewhere"')
        assert await asking.elicitations.read_elicitation_answer("elic_1") is None
        answers = [b'{"n":%d}' % number for number in range(8)]
        stores = [asking, other] * 4
        taken = await asyncio.gather(
            *(
                store.elicitations.answer_elicitation("elic_1", "resp_1", "alice", each)
                for store, each in zip(stores, answers, strict=True)
            )
        )
        assert taken.count(True) == 1
        assert await asking.elicitations.read_elicitation_answer("elic_1") == answers[taken.index(True)]
        await asking.elicitations.delete_elicitation("elic_1")
        assert await other.elicitations.list_elicitations("resp_1", "alice") == []
        assert await asking.elicitations.read_elicitation_answer("elic_1") is None
    finally:
        await asking.close()
        await other.close()


@pytest.mark.proves("D-28")
@async_test
async def test_a_question_is_gone_once_it_has_expired_or_its_gateway_has_ended(tmp_path: Path, url: str) -> None:
    asking, other = open_store(url, folder=tmp_path), open_store(url, folder=tmp_path)
    try:
        await asking.elicitations.add_elicitation(build_question("elic_old", seconds=-1.0))
        await asking.elicitations.add_elicitation(build_question("elic_new"))
        assert [each.id for each in await other.elicitations.list_elicitations("resp_1", "alice")] == ["elic_new"]
        assert not await other.elicitations.answer_elicitation("elic_old", "resp_1", "alice", b"1")
        assert await other.elicitations.answer_elicitation("elic_new", "resp_1", "alice", b"1")
        await other.elicitations.add_elicitation(build_question("elic_other"))
        # Deleted however long other things are kept: one of the same id can be added again.
        await other.delete_older_than(0.0)
        await other.elicitations.add_elicitation(build_question("elic_old"))
        await asking.close()
        assert [each.id for each in await other.elicitations.list_elicitations("resp_1", "alice")] == [
            "elic_other",
            "elic_old",
        ]
        assert not await other.elicitations.answer_elicitation("elic_new", "resp_1", "alice", b"3")
    finally:
        await asking.close()
        await other.close()
