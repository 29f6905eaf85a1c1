"""The changes to a schema: a bounded list of them as text, and what undoes them for arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Changes that are listed for one schema.
MAX_SCHEMA_NOTES = 50


class ChangeNotes:
    """Collects distinct changes. `is_looser`: the adapted schema accepts values that the original may refuse."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self.is_looser = False

    def add(self, text: str, path: str, *, is_looser: bool = False) -> None:
        """Add a change at a path such as `/properties/a`."""
        self.is_looser = self.is_looser or is_looser
        if len(self._texts) < MAX_SCHEMA_NOTES:
            self._texts[f"{text} at {path or '/'}"] = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)


@dataclass(slots=True)
class ArgumentRestorer:
    """Restores arguments that match an adapted schema to the tool's own schema.

    It has the changes to undo at one position of the arguments, with the restorers of the positions below.
    """

    names: dict[str, str] = field(default_factory=dict)
    """Renamed properties: original names by new names."""
    nulls: set[str] = field(default_factory=set)
    """Optional properties, for which strict models write null."""
    fields: dict[str, ArgumentRestorer] = field(default_factory=dict)
    items: ArgumentRestorer | None = None
    others: ArgumentRestorer | None = None
    """The restorer for properties that the schema does not name."""
    branches: list[ArgumentRestorer] = field(default_factory=list)
    """Restorers of subschemas that describe the same position, such as those of `anyOf`."""

    def restore(self, value: Any) -> Any:
        """Return the value for the tool's own schema."""
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
            restorers = [route.fields.get(name) or route.others for route in here]
            original = next((route.names[name] for route in here if name in route.names), name)
            yield original, _join_restorers(restorers).restore(inner)

    def _with_branches(self) -> Iterator[ArgumentRestorer]:
        yield self
        for branch in self.branches:
            yield from branch._with_branches()


def _join_restorers(restorers: list[ArgumentRestorer | None]) -> ArgumentRestorer:
    present = [restorer for restorer in restorers if restorer is not None]
    return present[0] if len(present) == 1 else ArgumentRestorer(branches=present)
