"""Escapes untrusted text for display: no control sequences, no invisible or reordering characters."""

from __future__ import annotations

import re
import unicodedata

_ALLOWED_CONTROLS = frozenset("\n\t")
# Unicode categories: controls, bidi and zero-width marks, private use, surrogates, line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
# Default_Ignorable_Code_Point outside these categories, and characters that fonts draw as nothing: invisible on a
# screen, but read by a model.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
_EMOJI_STYLE = "\ufe0f"


def escape_unprintable(text: str) -> str:
    """Replace each character that could move, hide or reorder others by its code, such as `<U+202E>`."""
    if text.isascii() and text.isprintable():
        return text
    before = ("", *text)
    return "".join(
        char if _is_harmless(char, last) else f"<U+{ord(char):04X}>" for char, last in zip(text, before, strict=False)
    )


def one_line(text: str, limit: int) -> str:
    """Escape the text, put it on one line and cut it to `limit` characters."""
    flat = " ".join(escape_unprintable(text).split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 0)] + "…"


def _is_harmless(char: str, last: str) -> bool:
    """`last` is the character before: an emoji variation selector is harmless only after a symbol."""
    if " " <= char <= "~":
        return True
    if char == _EMOJI_STYLE:
        return bool(last) and unicodedata.category(last) == "So" and not _BLANK.match(last)
    return char in _ALLOWED_CONTROLS or (unicodedata.category(char) not in _INVISIBLE and not _BLANK.match(char))
