"""Text from outside is made harmless where it is shown: no escape sequences, no invisible or reordering characters."""

from __future__ import annotations

import re
import unicodedata

_ALLOWED_CONTROLS = frozenset("\n\t")
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})  # controls, bidi and zero-width marks, private, surrogates
# Unicode's Default_Ignorable_Code_Point outside these categories, and what a font draws as nothing: a person does not
# see them, and a model reads them.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
_EMOJI_STYLE = "\ufe0f"


def escape_unprintable(text: str) -> str:
    """The text with each character that could move, hide or reorder others replaced by its code, as `<U+202E>`."""
    if text.isascii() and text.isprintable():
        return text
    before = ("", *text)
    return "".join(
        char if _is_harmless(char, last) else f"<U+{ord(char):04X}>" for char, last in zip(text, before, strict=False)
    )


def one_line(text: str, limit: int) -> str:
    """The text on one line, harmless, and no longer than the limit."""
    flat = " ".join(escape_unprintable(text).split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 0)] + "…"


def _is_harmless(char: str, last: str) -> bool:
    """`last`: the character before, which says whether a request for emoji style belongs to a symbol."""
    if " " <= char <= "~":
        return True
    if char == _EMOJI_STYLE:
        return bool(last) and unicodedata.category(last) == "So" and not _BLANK.match(last)
    return char in _ALLOWED_CONTROLS or (unicodedata.category(char) not in _INVISIBLE and not _BLANK.match(char))
