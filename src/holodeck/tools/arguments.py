"""Arguments of a tool call: from the text that a model wrote to values that fit, or words about what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.limits import MAX_SHOWN_CHARS

_MAX_PROBLEM_CHARS = 200  # of each: five of them are a paragraph for the model


class BadArgumentsError(ValueError):
    """The arguments cannot be used; the message tells the model why."""


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments as a mapping. Nothing at all means none."""
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
    """Checks arguments against the input schemas of tools. Belongs to an agent or a gateway, which closes it."""

    def __init__(self) -> None:
        self._checker = SchemaChecker()

    async def check_arguments(self, tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Raise `BadArgumentsError` with the first things that do not fit.

        A check that cannot be made, or not in time, is logged and stops no call: what runs the tool checks as well.
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
        """End the checking process, if one was needed."""
        await self._checker.close()
