"""What a request says that could be an argument: each thing once, of one kind, with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, auto
from typing import Any

from holodeck.lib.limits import MAX_ENTITIES
from holodeck.providers.rehearsal.zones import find_zones, zone_names


class EntityKind(StrEnum):
    """What a thing in a request looks like."""

    URL = auto()
    EMAIL = auto()
    DATE = auto()
    CLOCK = auto()
    GLOB = auto()
    PATH = auto()
    REVISION = auto()
    NUMBER = auto()
    QUOTED = auto()
    ZONE = auto()
    NAME = auto()
    """Capitalised words that are not at the start of a sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entity:
    """A thing in a request: `value` is what an argument would hold, `text` how the person wrote it."""

    kind: EntityKind
    value: Any
    text: str
    start: int
    end: int


_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = _MONTH_NAMES.split()
_MONTH = "|".join(f"{month}|{month[:3]}" for month in _MONTHS)
_NUMBER_NAMES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty"""
_NUMBER_WORDS = {word: number for number, word in enumerate(_NUMBER_NAMES.split())}

_UP_TO = "{1,4000}"
"""The longest text between quotes: without a bound, a page of lone quotes takes minutes."""

_PATTERNS: tuple[tuple[EntityKind, str], ...] = (
    (EntityKind.QUOTED, rf"\"(?P<v1>[^\"\n]{_UP_TO})\"|“(?P<v2>[^”\n]{_UP_TO})”|`(?P<v3>[^`\n]{_UP_TO})`"),
    (EntityKind.QUOTED, rf"(?<!\w)'(?P<v4>[^'\n]{_UP_TO}(?:'\w[^'\n]*){{0,9}})'(?!\w)"),
    (EntityKind.URL, r"(?<![\w+.-])[a-z][a-z0-9+.-]*://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]]"),
    (EntityKind.EMAIL, r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
    (EntityKind.DATE, r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:?\d{2})?)?\b"),
    (EntityKind.DATE, rf"\b(?:{_MONTH})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}\b"),
    (EntityKind.DATE, rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:{_MONTH})\.?,?\s+\d{{4}}\b"),
    (
        EntityKind.CLOCK,
        r"\b\d{1,2}:\d{2}(?::\d{2})?\s*(?:[ap]\.?m\b\.?)?|\b\d{1,2}\s*[ap]\.?m\b\.?|\b(?:noon|midnight)\b",
    ),
    (EntityKind.GLOB, r"(?<!\S)[\w./-]*\*[\w.*/{},-]*"),
    (EntityKind.REVISION, r"\bHEAD(?:[~^]\d*)*(?![\w])|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"),
    (EntityKind.PATH, r"(?<![\w/])(?:~|\.{1,2})?/[\w.@~+/-]*[\w@~+/-]|\b[A-Za-z]:\\[^\s\"']+|(?<!\S)\.{1,2}(?=\s|$)"),
    (EntityKind.PATH, r"(?<![\w/.+-])[\w.+-]+(?:/[\w.+-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w/])"),
    (EntityKind.PATH, r"(?<![\w/.+-])(?!and/or\b)[\w+-][\w.+-]*/(?:[\w.+-]+/)*(?:[\w.+-]*[\w+-])?"),
    (EntityKind.NUMBER, r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,18})(?:\.\d{1,18})?(?![\w]|\.\d)"),
)
_COMPILED = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]
_CAPITALISED = re.compile(r"(?<![\w.])[A-Z][\w'-]*(?:\s+(?:(?:de|of|the|van|von)\s+)?[A-Z][\w'-]*)*")
_SENTENCE_START = re.compile(r"^$|[.!?:\n]\s*$")


def find_entities(text: str) -> list[Entity]:
    """Everything in the text that could be an argument, in its order. Nothing is found twice."""
    taken = [False] * len(text)
    found: list[Entity] = []
    for finding in _find_candidates(text):
        if not any(taken[finding.start : finding.end]):
            taken[finding.start : finding.end] = [True] * (finding.end - finding.start)
            found.append(finding)
    if not any(finding.kind is EntityKind.NUMBER for finding in found):
        found += [finding for finding in _find_number_words(text) if not any(taken[finding.start : finding.end])]
    return sorted(found, key=lambda finding: finding.start)[:MAX_ENTITIES]


def _find_candidates(text: str) -> Iterator[Entity]:
    zones = [_zone(text[start:end], start) for start, end in find_zones(text)]
    yield from (_entity_of(kind, match) for kind, pattern in _COMPILED[:2] for match in pattern.finditer(text))
    yield from (zone for zone in zones if "/" in zone.text)
    yield from (_entity_of(kind, match) for kind, pattern in _COMPILED[2:] for match in pattern.finditer(text))
    yield from (zone for zone in zones if "/" not in zone.text and _is_meant(zone))
    for match in _CAPITALISED.finditer(text):
        if not _SENTENCE_START.search(text[max(0, match.start() - 3) : match.start()]) and match.group() != "I":
            yield _entity_of(EntityKind.NAME, match)


def _zone(written: str, start: int) -> Entity:
    value = zone_names()[written.lower()]
    return Entity(kind=EntityKind.ZONE, value=value, text=written, start=start, end=start + len(written))


def _is_meant(zone: Entity) -> bool:
    return zone.text[0].isupper() or zone.text.islower()


def _entity_of(kind: EntityKind, match: re.Match[str]) -> Entity:
    written = next((group for group in match.groups() if group), match.group().strip())
    return Entity(kind=kind, value=_VALUES.get(kind, str)(written), text=written, start=match.start(), end=match.end())


def _find_number_words(text: str) -> Iterator[Entity]:
    for match in re.finditer(r"\b[a-z]+\b", text, re.IGNORECASE):
        word = match.group().lower()
        if word in _NUMBER_WORDS:
            value = _NUMBER_WORDS[word]
            yield Entity(kind=EntityKind.NUMBER, value=value, text=word, start=match.start(), end=match.end())


def _parse_number(written: str) -> int | float:
    plain = written.replace(",", "")
    return float(plain) if "." in plain else int(plain)


def _parse_clock(written: str) -> str:
    """`3 pm` is `15:00`."""
    plain = written.lower().replace(".", "").replace(" ", "")
    if plain in {"noon", "midnight"}:
        return "12:00" if plain == "noon" else "00:00"
    hour, _, rest = plain.rstrip("apm").partition(":")
    number = int(hour)
    if plain.endswith("pm") and number < 12:  # noqa: PLR2004 - the hours of a clock face
        number += 12
    if plain.endswith("am") and number == 12:  # noqa: PLR2004
        number = 0
    return f"{number:02d}:{rest or '00'}"


def _parse_date(written: str) -> str:
    """`January 5th, 2026` is `2026-01-05`; what is ISO already stays."""
    words = re.sub(r"(\d)(?:st|nd|rd|th)", r"\1", written).replace(",", " ").replace(".", " ").split()
    month = next((word for word in words if word.isalpha()), None)
    if month is None or "-" in words[0]:
        return written
    number = next(index for index, name in enumerate(_MONTHS, 1) if name.startswith(month.lower()))
    day, year = (int(word) for word in words if word.isdigit())
    try:
        return datetime(year, number, day).date().isoformat()  # noqa: DTZ001 - a date, without a time of day
    except ValueError:
        return written


_VALUES: dict[EntityKind, Callable[[str], Any]] = {
    EntityKind.NUMBER: _parse_number,
    EntityKind.CLOCK: _parse_clock,
    EntityKind.DATE: _parse_date,
}
