"""The way back: arguments that fit an adapted schema become arguments for the tool's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ArgumentRestorer:
    """What to undo at one place of the arguments, and where to go on."""

    names: dict[str, str] = field(default_factory=dict)
    """Properties that were renamed: the new name and the old one."""
    nulls: set[str] = field(default_factory=set)
    """Properties that may be left out; strict models say null instead."""
    fields: dict[str, ArgumentRestorer] = field(default_factory=dict)
    items: ArgumentRestorer | None = None
    others: ArgumentRestorer | None = None
    """For properties that the schema does not name."""
    branches: list[ArgumentRestorer] = field(default_factory=list)
    """Alternatives and additions that describe the same place."""

    def restore(self, value: Any) -> Any:
        """The value as the tool's own schema has it."""
        if isinstance(value, dict):
            return dict(self._restore_fields(value))
        if isinstance(value, list):
            inner = _join_restorers([route.items for route in self._with_branches()])
            return [inner.restore(each) for each in value]
        return value

    def _restore_fields(self, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        here = list(self._with_branches())
        for name, inner in value.items():
            if inner is None and any(name in route.nulls for route in here):
                continue
            ways = [route.fields.get(name) or route.others for route in here]
            original = next((route.names[name] for route in here if name in route.names), name)
            yield original, _join_restorers(ways).restore(inner)

    def _with_branches(self) -> Iterator[ArgumentRestorer]:
        yield self
        for branch in self.branches:
            yield from branch._with_branches()


def _join_restorers(restorers: list[ArgumentRestorer | None]) -> ArgumentRestorer:
    real = [route for route in restorers if route is not None]
    return real[0] if len(real) == 1 else ArgumentRestorer(branches=real)
