"""What was changed in a schema, in words, each once and bounded."""

from __future__ import annotations

# Of changes, shown to a person.
MAX_SCHEMA_NOTES = 50


class ChangeNotes:
    """Collects changes; `is_looser` when the adapted schema accepts what the original may refuse."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self.is_looser = False

    def add(self, text: str, path: str, *, is_looser: bool = False) -> None:
        """Write down a change at a place such as `/properties/a`."""
        self.is_looser = self.is_looser or is_looser
        if len(self._texts) < MAX_SCHEMA_NOTES:
            self._texts[f"{text} at {path or '/'}"] = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)
