"""A token store that lasts as long as the test."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from holodeck.tools.mcp.auth.token_store import LOGIN_COMMAND, LoginRecord


class MemoryTokens:
    """For one run only."""

    reload_seconds = math.inf
    login_advice = LOGIN_COMMAND

    def __init__(self) -> None:
        self._records: dict[str, LoginRecord] = {}

    async def load(self, key: str) -> LoginRecord | None:
        return self._records.get(key)

    async def save(self, key: str, record: Mapping[str, Any]) -> None:
        self._records[key] = dict(record)

    async def delete(self, key: str) -> None:
        self._records.pop(key, None)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        yield
