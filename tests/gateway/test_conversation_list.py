"""`GET /v1/conversations`: a caller finds its own conversations again, page by page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import RunningGateway, run_gateway

ALICE, BOB, ROOT = "hd-alice", "hd-bob", "hd-root"


async def create(gateway: RunningGateway, *, key: str = ALICE, **body: Any) -> str:
    code, conversation = await gateway.send("POST", "/v1/conversations", body, key=key)
    assert code == 200, conversation
    return str(conversation["id"])


async def create_several(gateway: RunningGateway, count: int, *, key: str = ALICE) -> list[str]:
    return [await create(gateway, key=key) for _ in range(count)]


async def get_page(gateway: RunningGateway, query: str = "", *, key: str = ALICE) -> Any:
    code, page = await gateway.send("GET", f"/v1/conversations{query}", key=key)
    assert code == 200, page
    return page


async def list_ids(gateway: RunningGateway, query: str = "", *, key: str = ALICE) -> list[str]:
    return [conversation["id"] for conversation in (await get_page(gateway, query, key=key))["data"]]


async def get_error(gateway: RunningGateway, query: str, *, key: str = ALICE) -> Any:
    code, refused = await gateway.send("GET", f"/v1/conversations{query}", key=key)
    assert code == 400, refused
    return refused["error"]


@async_test(60)
async def test_conversations_are_listed_newest_first_as_each_is_read(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], **storage) as gateway:
        none = {"first_id": None, "last_id": None, "has_more": False}
        assert await get_page(gateway) == {"object": "list", "data": [], **none}
        hello = {"role": "user", "content": "Hello"}
        first = await create(gateway, metadata={"topic": "sums"}, items=[hello])
        second = await create(gateway)
        third = await create(gateway, metadata={"topic": "pears"})
        await gateway.send("POST", f"/v1/conversations/{first}", {"metadata": {"topic": "apples"}}, key=ALICE)
        newest_first = [third, second, first]
        read = [(await gateway.send("GET", f"/v1/conversations/{each}", key=ALICE))[1] for each in newest_first]
        page = await get_page(gateway)
    assert page == {"object": "list", "data": read, "first_id": third, "last_id": first, "has_more": False}
    assert [each["id"] for each in page["data"]] == newest_first
    assert [each["metadata"] for each in page["data"]] == [{"topic": "pears"}, {}, {"topic": "apples"}]


@pytest.mark.parametrize("order", ["asc", "desc"])
@async_test(60)
async def test_pages_have_every_conversation_once_in_either_order(
    tmp_path: Path, storage: dict[str, Any], order: str
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE, BOB], **storage) as gateway:
        made = []
        for _ in range(7):
            made.append(await create(gateway))
            await create(gateway, key=BOB)
        sizes, found = [], []
        query = f"?order={order}&limit=3"
        while query:
            page = await get_page(gateway, query)
            ids = [conversation["id"] for conversation in page["data"]]
            assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
            sizes.append(len(ids))
            found += ids
            query = f"?order={order}&limit=3&after={page['last_id']}" if page["has_more"] else ""
        assert found == (made if order == "asc" else made[::-1])
        assert sizes == [3, 3, 1]
        assert not (await get_page(gateway, f"?order={order}&limit=7"))["has_more"], "it is full, and the last one"
        assert await list_ids(gateway, f"?order={order}&after={found[-1]}") == []


@async_test(60)
async def test_a_page_has_twenty_conversations_unless_the_request_asks_for_up_to_a_hundred(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], **storage) as gateway:
        made = await create_several(gateway, 21)
        page = await get_page(gateway)
        assert [conversation["id"] for conversation in page["data"]] == made[:0:-1]
        assert page["has_more"]
        assert await list_ids(gateway, "?limit=1") == made[-1:]
        assert await list_ids(gateway, "?limit=100") == made[::-1]


@async_test(60)
async def test_the_next_page_begins_behind_the_last_one_whatever_is_created_and_deleted_meanwhile(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], **storage) as gateway:
        made = await create_several(gateway, 5)
        assert await list_ids(gateway, "?limit=2") == [made[4], made[3]]
        newer = await create(gateway)
        assert await list_ids(gateway, f"?limit=2&after={made[3]}") == [made[2], made[1]]
        for gone in (newer, made[4], made[3]):
            assert (await gateway.send("DELETE", f"/v1/conversations/{gone}", key=ALICE))[0] == 200
        assert await list_ids(gateway, f"?limit=2&after={made[1]}") == [made[0]]


@pytest.mark.proves("D-29")
@async_test(60)
async def test_each_caller_also_an_operator_lists_its_own_conversations_only(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE, BOB], admins=[ROOT], **storage) as gateway:
        of_alice, of_bob = await create(gateway), await create(gateway, key=BOB)
        assert await list_ids(gateway, key=ROOT) == []
        of_root = await create(gateway, key=ROOT)
        for order in ("asc", "desc"):
            for key, expected in ((ALICE, of_alice), (BOB, of_bob), (ROOT, of_root)):
                assert await list_ids(gateway, f"?order={order}", key=key) == [expected]


@pytest.mark.proves("D-29")
@async_test(60)
async def test_after_another_caller_s_conversation_is_refused_like_after_an_unknown_one(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE, BOB], admins=[ROOT], **storage) as gateway:
        await create(gateway)
        theirs = await create(gateway, key=BOB)
        unknown = theirs[:-6] + "000000"
        for key in (ALICE, ROOT):
            refused = await get_error(gateway, f"?after={theirs}", key=key)
            missing = await get_error(gateway, f"?after={unknown}", key=key)
            assert (refused["code"], refused["param"]) == ("item_not_found", "after")
            assert repr(refused).replace(theirs, "ID") == repr(missing).replace(unknown, "ID")
        assert await list_ids(gateway, f"?after={theirs}", key=BOB) == []


@async_test(60)
async def test_a_deleted_conversation_is_listed_no_more_and_no_page_begins_behind_it(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], **storage) as gateway:
        made = await create_several(gateway, 3)
        assert (await gateway.send("DELETE", f"/v1/conversations/{made[1]}", key=ALICE))[0] == 200
        assert await list_ids(gateway) == [made[2], made[0]]
        refused = await get_error(gateway, f"?after={made[1]}")
        assert (refused["code"], refused["param"]) == ("item_not_found", "after")
        assert made[1] in refused["message"]


@pytest.mark.proves("D-25")
@async_test(60)
async def test_a_wrong_query_is_refused_with_the_name_of_its_parameter(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], **storage) as gateway:
        await create(gateway)
        for query, param, code in (
            ("limit=0", "limit", "integer_below_min_value"),
            ("limit=101", "limit", "integer_above_max_value"),
            ("limit=few", "limit", "invalid_type"),
            ("order=up", "order", "invalid_value"),
            ("after=conv_gone", "after", "item_not_found"),
            ("after=a%00b", "after", "item_not_found"),
        ):
            refused = await get_error(gateway, f"?{query}")
            assert (refused["param"], refused["code"]) == (param, code), query
