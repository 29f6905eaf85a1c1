"""The official client at the MCP endpoint is asked to open the page of a login, and its call goes on after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.mcp_endpoint.sdk_client import MODES, Mode, connect, text_of
from gateway.test_caller_logins import ALICE, BOB, LINK, Browser, find_token, serve
from mcp import types


class Person:
    """Opens the pages that the client is asked to open, and logs in there."""

    def __init__(self, *, declines: bool = False) -> None:
        self.asked: list[Any] = []
        self._declines = declines

    async def answer(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        if self._declines:
            return types.ElicitResult(action="decline")
        assert (await Browser().log_in(params.url))[0] == 200
        return types.ElicitResult(action="accept")


@pytest.mark.parametrize("mode", MODES)
@async_test(60)
async def test_a_call_waits_for_the_login_of_its_person_and_goes_on(tmp_path: Path, mode: Mode) -> None:
    alice, bob = Person(), Person()
    async with (
        serve(tmp_path) as (site, gateway),
        connect(gateway, mode, key=ALICE, elicitation_callback=alice.answer) as client,
        connect(gateway, mode, key=BOB, elicitation_callback=bob.answer) as second,
    ):
        tokens = []
        for each in (client, second, client):
            assert "3" in text_of(await each.call_tool("add", {"a": 1, "b": 2}))
            tokens.append(find_token(site))
        assert tokens[0] == tokens[2] != tokens[1]
        for person in (alice, bob):
            (asked,) = person.asked
            assert (asked.mode, LINK in asked.url, "tickets" in asked.message) == ("url", True, True)


@pytest.mark.parametrize("mode", MODES)
@async_test(60)
async def test_a_client_that_opens_no_page_gets_the_link_in_the_error(tmp_path: Path, mode: Mode) -> None:
    person = Person(declines=True)
    async with (
        serve(tmp_path) as (_, gateway),
        connect(gateway, mode, key=ALICE) as client,
        connect(gateway, mode, key=BOB, elicitation_callback=person.answer) as second,
    ):
        for each in (client, second):
            result = await each.call_tool("add", {"a": 1, "b": 2})
            assert result.is_error
            assert LINK in text_of(result)
        assert len(person.asked) == 1
