"""Checks an answer against the schema that its server promised, within a time budget; a mismatch is a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OutputChecks:
    async def problem(self, schema: Mapping[str, Any], value: Any) -> str | None:
        return None

    async def close(self) -> None:
        return
