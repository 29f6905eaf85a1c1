"""The way back: arguments that fit an adapted schema become arguments for the tool's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Route:
    """What to undo at one place of the arguments, and where to go on."""

    names: dict[str, str] = field(default_factory=dict)
    """Properties that were renamed: the new name and the old one."""
    nulls: set[str] = field(default_factory=set)
    """Properties that may be left out; strict models say null instead."""
    fields: dict[str, Route] = field(default_factory=dict)
    items: Route | None = None
    others: Route | None = None
    """For properties that the schema does not name."""
    branches: list[Route] = field(default_factory=list)
    """Alternatives and additions that describe the same place."""

    def back(self, value: Any) -> Any:
        """The value as the tool's own schema has it."""
        if isinstance(value, dict):
            return dict(self._fields_back(value))
        if isinstance(value, list):
            inner = _joined([route.items for route in self._all()])
            return [inner.back(each) for each in value]
        return value

    def _fields_back(self, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        here = list(self._all())
        for name, inner in value.items():
            if inner is None and any(name in route.nulls for route in here):
                continue
            ways = [route.fields.get(name) or route.others for route in here]
            original = next((route.names[name] for route in here if name in route.names), name)
            yield original, _joined(ways).back(inner)

    def _all(self) -> Iterator[Route]:
        yield self
        for branch in self.branches:
            yield from branch._all()


def _joined(routes: list[Route | None]) -> Route:
    real = [route for route in routes if route is not None]
    return real[0] if len(real) == 1 else Route(branches=real)
