"""What is read about conversations takes as many steps of the database with many conversations as with few."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from async_tests import async_test

from holodeck.storage.conversations import Conversation, ConversationItem, Order
from holodeck.storage.sqlite.connection import SQLiteConnection
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore

FEW, MANY = 20, 2_000
LIMIT = 5


class CountingDriver(SQLiteDriver):
    """A database in memory that counts the instructions of SQLite's virtual machine."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.steps = 0

    def _connect(self) -> SQLiteConnection:
        connection = super()._connect()
        connection.set_progress_handler(self._count_step, 1)
        return connection

    def _count_step(self) -> None:
        self.steps += 1


async def count_steps(read: Callable[[ResponseStore, int], Awaitable[None]], count: int) -> int:
    """The steps that `read` takes with so many conversations of one caller, each with one item; the oldest is `c0`."""
    driver = CountingDriver()
    store = ResponseStore(driver)
    try:
        for number in range(count):
            conversation = Conversation(id=f"c{number}", caller_id="alice", created_at=float(number))
            await store.create_conversation(conversation, [ConversationItem(id=f"i{number}", data=b"{}")])
        driver.steps = 0
        await read(store, count)
        return driver.steps
    finally:
        await store.close()


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("is_after", [False, True])
@async_test(60)
async def test_a_page_of_conversations_takes_the_same_steps_with_many(order: Order, is_after: bool) -> None:
    async def read_page(store: ResponseStore, count: int) -> None:
        after = f"c{count // 2}" if is_after else None
        page = await store.list_conversations("alice", after=after, limit=LIMIT, order=order)
        assert page is not None
        assert len(page) == LIMIT

    assert await count_steps(read_page, FEW) == await count_steps(read_page, MANY)


@pytest.mark.parametrize("item_id", ["i0", "gone"])
@async_test(60)
async def test_an_item_is_found_by_its_id_in_the_same_steps_with_many_conversations(item_id: str) -> None:
    async def find_item(store: ResponseStore, _: int) -> None:
        assert (await store.find_item(item_id, "alice") is None) is (item_id == "gone")

    assert await count_steps(find_item, FEW) == await count_steps(find_item, MANY)
