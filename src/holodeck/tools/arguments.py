"""Parses the arguments of a tool call from the model's text, and checks them against the input schema of the tool.

Both raise `BadArgumentsError`, whose text is sent to the model so that it can correct the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.limits import MAX_SHOWN_CHARS

# Characters of each problem in an error text for the model: five problems make a paragraph.
_MAX_PROBLEM_CHARS = 200


class BadArgumentsError(ValueError):
    """The arguments cannot be used. The text is for the model."""


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments. Empty text and `null` mean no arguments. Raises `BadArgumentsError`."""
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except ValueError as error:
        near = text[:MAX_SHOWN_CHARS]
        raise BadArgumentsError(f"The arguments are not valid JSON ({error}). They begin: {near}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgumentsError('The arguments must be a JSON object, such as {"name": "value"}.')
    return value


class ArgumentChecker:
    """Checks arguments against the input schemas of tools. Owned and closed by an agent or a gateway."""

    def __init__(self, *, in_process: bool = False) -> None:
        """`in_process`: see `SchemaChecker`."""
        self._checker = SchemaChecker(in_process=in_process)

    async def check_arguments(self, tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Raise `BadArgumentsError` with the first violations of the schema.

        A check that is impossible or takes too long is logged and does not fail the call: the executor of the tool
        validates its arguments as well.
        """
        try:
            violations = await self._checker.find_violations(schema, arguments)
        except (SchemaError, UncheckedError) as error:
            log.warning("tools.arguments_unchecked", tool=tool, reason=error)
            return
        if violations:
            problems = (f"{each.path or 'arguments'}: {each.message[:_MAX_PROBLEM_CHARS]}" for each in violations)
            raise BadArgumentsError("The arguments do not fit the tool: " + "; ".join(problems))

    async def close(self) -> None:
        """End the schema worker process, if one was started."""
        await self._checker.close()
