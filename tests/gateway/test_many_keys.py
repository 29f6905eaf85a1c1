"""Thousands of keys in the store cost a request nothing."""

from __future__ import annotations

from pathlib import Path

import orjson
from async_tests import async_test
from counted_calls import CountedCalls

from holodeck.config.edit.caller_keys import build_entry
from holodeck.gateway.auth.callers import Callers, hash_key
from holodeck.gateway.auth.stored_keys import StoredKeys
from holodeck.storage.factory import open_store

MANY = 5_000


async def count_calls(callers: Callers, key: str) -> tuple[int, int]:
    """The calls of functions that find the caller of a key, the first time and after that."""
    headers, counts = {"authorization": f"Bearer {key}"}, []
    for _ in range(2):
        calls = CountedCalls()
        with calls.counting():
            caller = await callers.authenticate(headers)
        assert caller is not None
        counts.append(calls.count)
    first, again = counts
    return first, again


@async_test(120)
async def test_finding_the_caller_of_a_request_takes_as_many_calls_with_one_key_as_with_thousands(
    tmp_path: Path,
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/keys.db", folder=tmp_path)
    keys = StoredKeys(store.caller_keys)
    callers = Callers([keys])
    try:
        for number in range(MANY):
            entry = build_entry(f"key-{number}", hash_key(f"hd-{number}"))
            assert await store.caller_keys.add_key(f"key-{number}", orjson.dumps(entry), "key:ops")
            if number == 0:
                await keys.refresh()
                alone = await count_calls(callers, "hd-0")
        await keys.refresh()
        assert len(keys.list_keys()) == MANY
        assert await count_calls(callers, f"hd-{MANY // 2}") == alone
    finally:
        await store.close()
