"""Checks structured content against the output schema of its tool, in bounded time. A mismatch is a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError

MISSING = "the tool promises structured content and gave none"


class OutputChecker:
    """Checks the answers of one server. `close` ends the schema worker process."""

    def __init__(self, *, in_process: bool = False) -> None:
        """`in_process`: see `SchemaChecker`."""
        self._checker = SchemaChecker(in_process=in_process)

    async def close(self) -> None:
        await self._checker.close()

    async def find_problem(self, tool: str, schema: Mapping[str, Any], value: Any) -> str | None:
        """Return what is wrong with the value, or why it was not checked, or None. Does not raise; time is bounded."""
        if value is None:
            return MISSING
        try:
            violations = await self._checker.find_violations(schema, value)
        except SchemaError as error:
            return f"the structured content has a schema that cannot be used: {error}"
        except UncheckedError as error:
            log.warning("mcp.answer_unchecked", tool=tool, reason=error)
            return f"the structured content was not checked: {error}"
        return f"the structured content does not fit its schema: {violations[0].message}" if violations else None
