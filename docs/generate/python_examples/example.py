"""One program on `reference/python.md`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Example:
    """One program: `names` are the public names that it shows. It is in the section of the first of them."""

    title: str
    about: str
    code: str
    output: str
    names: tuple[str, ...]
