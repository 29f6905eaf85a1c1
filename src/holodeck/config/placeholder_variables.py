"""Variables for reading a file whose own are not set: every name has a value, which is never shown or used."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Collection, Mapping


class PlaceholderVariables(UserDict[str, str]):
    """The given variables, and a text for every other name, except for `without`."""

    def __init__(self, environ: Mapping[str, str], *, without: Collection[str] = ()) -> None:
        super().__init__(environ)
        self._without = frozenset(without)

    def __contains__(self, name: object) -> bool:
        return name in self.data or name not in self._without

    def __missing__(self, name: str) -> str:
        if name in self._without:
            raise KeyError(name)
        return "placeholder"
