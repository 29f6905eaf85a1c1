"""Yes and no, and values of an enumeration: chosen only when the request names them."""

from __future__ import annotations

import re

from holodeck.providers.rehearsal.fields import Field
from holodeck.providers.rehearsal.words import stem, stem_set, stems

_NEGATION = re.compile(r"\b(?:no|not|without|don't|do not|never|disable|off|skip)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_SAYS_LITTLE = stem_set("is has include included enable enabled with should use allow show return")
"""Words in the name of a yes-or-no field that are not what it is about."""


def boolean(field: Field, text: str) -> bool | None:
    """True when the request names it, False when it names it with a "no", None when it does not."""
    explicit = re.search(
        rf"\b{re.escape(str(field.path[-1]))}\s*(?:[:=]|\bis\b|\bto\b)?\s*(true|false|yes|no|on|off)\b",
        text,
        re.IGNORECASE,
    )
    if explicit:
        return explicit[1].lower() in {"true", "yes", "on"}
    wanted = field.labels - _SAYS_LITTLE
    places = {stem(match.group()): match.start() for match in re.finditer(r"[A-Za-z]+", text)}
    if not wanted or not wanted <= set(places):
        return None
    start = min(places[word] for word in wanted)
    return not _NEGATION.search(text[:start])


def choice(field: Field, text: str) -> object | None:
    """The value of an enumeration that the request names; an optional one only where the field is meant, too."""
    values = sorted(field.schema.get("enum", ()), key=lambda value: -len(str(value)))
    for value in values:
        words = r"[\s_-]*".join(map(re.escape, re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", str(value)))) or re.escape(
            str(value)
        )
        match = re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)
        if match and (field.is_required or _is_meant(field, text, match)):
            return value if not isinstance(value, (dict, list)) else None
    return None


def _is_meant(field: Field, text: str, match: re.Match[str]) -> bool:
    others = set(stems(text[: match.start()] + " " + text[match.end() :]))
    return bool(field.labels & others) or bool(
        re.search(r"\b(?:as|by|in|of type)\s+(?:an?\s+)?$", text[: match.start()], re.IGNORECASE)
    )
