"""Yes and no, and values of an enumeration: chosen only when the request names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from holodeck.providers.rehearsal.fit import score_direction
from holodeck.providers.rehearsal.schema_fields import Field
from holodeck.providers.rehearsal.stemming import stem, stem_set, stems

_NEGATION = re.compile(r"\b(?:no|not|without|don't|do not|never|disable|off|skip)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_SAYS_LITTLE = stem_set("is has include included enable enabled with should use allow show return")
"""Words in the name of a yes-or-no field that are not what it is about."""
_SWITCHES = frozenset({"on", "enabled", "enable", "active", "power"})
_OFF = re.compile(r"\b(?:off|disabled?|deactivated?)\b", re.IGNORECASE)
_ON = re.compile(r"\b(?:turn|switch|put)\b.*\bon\b|\bon\s*[.!?]?\s*$|\b(?:enabled?|activated?)\b", re.IGNORECASE)
_NAMED_AS = re.compile(r"\b(?:as|by|in|of type)\s+(?:an?\s+)?$", re.IGNORECASE)
_AROUND = 28
"""Characters before a value that say which field it is for."""


def parse_boolean(field: Field, text: str) -> bool | None:
    """True when the request names it, False when it names it with a "no", None when it does not."""
    name = str(field.path[-1])
    answers = r"\s*(?:[:=]|\bis\b|\bto\b)?\s*(true|false|yes|no|on|off)\b"
    explicit = re.search(rf"\b{re.escape(name)}{answers}", text, re.IGNORECASE)
    if explicit:
        return explicit[1].lower() in {"true", "yes", "on"}
    if name.lower() in _SWITCHES:
        return False if _OFF.search(text) else True if _ON.search(text) else None
    wanted = field.labels - _SAYS_LITTLE
    places = {stem(match.group()): match.start() for match in re.finditer(r"[A-Za-z]+", text)}
    if not wanted or not wanted <= set(places):
        return None
    start = min(places[word] for word in wanted)
    return not _NEGATION.search(text[:start])


def find_choices(fields: Sequence[Field], text: str, tool_name: str) -> Iterator[tuple[Field, Any]]:
    """Values of enumerations that the request names, each place of the text for one field only."""
    taken: list[range] = []
    for field in fields:
        found = [
            (match, value)
            for match, value in _find_enum_values(field, text)
            if not any(match.start() in place for place in taken)
            and (field.is_required or _is_meant(field, text, match, tool_name))
        ]
        if not found:
            continue
        best = max(found, key=lambda each: (score_direction(field, _text_before(text, each[0])), -each[0].start()))
        kept = found if field.is_many else [best]
        taken += [range(*match.span()) for match, _ in kept]
        yield field, [value for _, value in kept] if field.is_many else best[1]


def _find_enum_values(field: Field, text: str) -> list[tuple[re.Match[str], Any]]:
    """Where the request names a value; of two in one place, the longer one."""
    found: list[tuple[re.Match[str], Any]] = []
    for value in sorted(field.schema.get("enum", ()), key=lambda value: -len(str(value))):
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", str(value)) or [str(value)]
        spelled = r"[\s_-]*".join(map(re.escape, words))
        for match in re.finditer(rf"(?<!\w){spelled}(?!\w)", text, re.IGNORECASE):
            is_inside = any(match.start() in range(*other.span()) for other, _ in found)
            if not is_inside and isinstance(value, (str, int, float)):
                found.append((match, value))
    return sorted(found, key=lambda each: each[0].start())


def _is_meant(field: Field, text: str, match: re.Match[str], tool_name: str) -> bool:
    """An optional choice needs more than its word: the field's name, or a word of the tool right behind it."""
    others = set(stems(text[: match.start()] + " " + text[match.end() :]))
    following = stems(" ".join(text[match.end() :].split()[:1]))
    is_before_noun = bool(set(following) & set(stems(tool_name)))
    return bool(field.labels & others) or is_before_noun or bool(_NAMED_AS.search(_text_before(text, match)))


def _text_before(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - _AROUND) : match.start()]
