"""A bounded list of the changes to a schema, as text."""

from __future__ import annotations

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
