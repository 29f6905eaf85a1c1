"""Escapes untrusted text for people and models: no control sequences, no invisible or reordering characters."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import orjson

from holodeck.lib.limits import MAX_ARGUMENTS_SHOWN

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
# Controls other than line feed and tab, as orjson writes them. A backslash that is a character is written as two.
_CONTROL_IN_JSON = re.compile(rb"\\[ubfr]|\x7f")
# Most texts have no other characters.
_PLAIN = re.compile(r"[\n\t -~]*")


def escape_unprintable(text: str) -> str:
    """Replace each character that could move, hide or reorder others by its code, such as `<U+202E>`."""
    if _PLAIN.fullmatch(text):
        return text
    before = ("", *text)
    return "".join(
        char if _is_harmless(char, last) else f"<U+{ord(char):04X}>" for char, last in zip(text, before, strict=False)
    )


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, as names of files and arguments of commands can contain: UTF-8 has no form of them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def escape_json(value: Any) -> Any:
    """Return a JSON value with all texts and keys escaped: the same object if there is nothing to escape."""
    return value if is_plain_json(orjson.dumps(value)) else _escape_texts(value)


def is_plain_json(text: bytes) -> bool:
    """Return whether JSON text, as orjson writes it, has nothing to escape."""
    return text.isascii() and b"\x7f" not in text and (b"\\" not in text or _CONTROL_IN_JSON.search(text) is None)


def _escape_texts(value: Any) -> Any:
    if isinstance(value, str):
        return escape_unprintable(value)
    if isinstance(value, dict):
        return {escape_unprintable(key): _escape_texts(each) for key, each in value.items()}
    return [_escape_texts(each) for each in value] if isinstance(value, list) else value


def one_line(text: str, limit: int) -> str:
    """Escape the text, put it on one line and cut it to `limit` characters."""
    flat = " ".join(escape_unprintable(text).split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 0)] + "…"


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments such as `path="notes.md", lines=3`, cut to `MAX_ARGUMENTS_SHOWN`."""
    shown = (f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in arguments.items())
    return one_line(", ".join(shown), MAX_ARGUMENTS_SHOWN)


def _is_harmless(char: str, last: str) -> bool:
    """Return whether a character is harmless after `last`: an emoji variation selector is only after a symbol."""
    if " " <= char <= "~":
        return True
    if char == _EMOJI_STYLE:
        return bool(last) and unicodedata.category(last) == "So" and not _BLANK.match(last)
    return char in _ALLOWED_CONTROLS or (unicodedata.category(char) not in _INVISIBLE and not _BLANK.match(char))
