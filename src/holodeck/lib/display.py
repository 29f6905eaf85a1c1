"""Text from outside is made harmless where it is shown: no escape sequences, no invisible or reordering characters."""

from __future__ import annotations

import unicodedata

_ALLOWED_CONTROLS = frozenset("\n\t")
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})  # controls, bidi and zero-width marks, private, surrogates


def printable(text: str) -> str:
    """The text with each character that could move, hide or reorder others replaced by its code, as `<U+202E>`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else f"<U+{ord(char):04X}>" for char in text)


def one_line(text: str, limit: int) -> str:
    """The text on one line, harmless, and no longer than the limit."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 0)] + "…"


def _is_harmless(char: str) -> bool:
    return char in _ALLOWED_CONTROLS or unicodedata.category(char) not in _INVISIBLE
