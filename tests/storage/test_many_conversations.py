"""What is read about conversations takes as many steps of the database with many conversations as with few."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from holodeck.storage.base import Conversation, ConversationItem, Order
from holodeck.storage.sqlite import conversation_rows
from holodeck.storage.sqlite.connection import connect_sqlite

FEW, MANY = 20, 2_000
LIMIT = 5


def create_conversations(count: int) -> sqlite3.Connection:
    """A database with this many conversations of one caller, each with one item; the oldest is `c0`."""
    db = connect_sqlite(":memory:", "fast")
    for number in range(count):
        conversation = Conversation(id=f"c{number}", owner="alice", created_at=float(number))
        conversation_rows.create_conversation(db, conversation, [ConversationItem(id=f"i{number}", data=b"{}")])
    return db


def count_steps(read: Callable[[sqlite3.Connection, int], object], count: int) -> int:
    """The instructions of SQLite's virtual machine that `read` takes with so many conversations."""
    steps = 0

    def count_step() -> None:
        nonlocal steps
        steps += 1

    db = create_conversations(count)
    db.set_progress_handler(count_step, 1)
    try:
        read(db, count)
    finally:
        db.close()
    return steps


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_page_of_conversations_takes_the_same_steps_with_many(order: Order, is_after: bool) -> None:
    def read_page(db: sqlite3.Connection, count: int) -> None:
        after = f"c{count // 2}" if is_after else None
        page = conversation_rows.list_conversations(db, "alice", after=after, limit=LIMIT, order=order)
        assert page is not None
        assert len(page) == LIMIT

    assert count_steps(read_page, FEW) == count_steps(read_page, MANY)


@pytest.mark.parametrize("item_id", ["i0", "gone"])
def test_an_item_is_found_by_its_id_in_the_same_steps_with_many_conversations(item_id: str) -> None:
    def find_item(db: sqlite3.Connection, _: int) -> None:
        found = conversation_rows.find_item(db, item_id, "alice")
        assert (found is None) is (item_id == "gone")

    assert count_steps(find_item, FEW) == count_steps(find_item, MANY)
