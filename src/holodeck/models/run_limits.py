"""Limits of one run."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from holodeck.lib.errors import ConfigError
from holodeck.lib.record import record


@record
class RunLimits:
    """Limits of one run. A run that reaches one ends as `incomplete`, and `cause` of its result names the limit.

    Raises `ConfigError` for a limit that is not positive; `tool_calls` may be 0.
    """

    turns: int | None = None
    """Turns of the model, at most. None: `max_turns` of the agent file, which is 10 where it is absent."""
    tool_calls: int | None = None
    """Tool calls that are run, at most. After them the model must answer without tools. None: no limit."""
    tokens: int | None = None
    """Tokens of all turns. Checked after each turn: the last one may exceed it. None: no limit."""
    seconds: float | None = None
    """Duration. What is in progress then, a turn or calls, is cancelled. None: no limit."""
    cost: float | None = None
    """Cost by the price of the model, which must have one. Checked after each turn, as `tokens` is. None: no limit."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least_is_zero = each.name == "tool_calls"
            if value is None or (_is_number(value) and (value > 0 or (least_is_zero and value == 0))):
                continue
            least = "0 or more" if least_is_zero else "more than 0"
            raise ConfigError(f"The limit '{each.name}' is {value!r}: give a number that is {least}, or None.")

    def override(self, other: RunLimits) -> RunLimits:
        """Return these limits with those of `other` that are not None in their places."""
        values = {each.name: getattr(other, each.name) for each in fields(other)}
        return replace(self, **{name: value for name, value in values.items() if value is not None})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
