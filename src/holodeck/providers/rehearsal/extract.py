"""Entities of a request that could be arguments: URLs, paths, dates, numbers, time zones, quoted text, names.

Each part of the text belongs to at most one entity, of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum, auto
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from holodeck.lib.record import record
from holodeck.providers.rehearsal.stemming import word_set


class EntityKind(StrEnum):
    """The form of an entity."""

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


# Entities of one request.
MAX_ENTITIES = 60
# Frequent cities and countries without a time zone of their name.
_CITIES = {
    "America/New_York": "NYC, Boston, Washington, Washington DC, Miami, Atlanta, Philadelphia, Ottawa, Montreal",
    "America/Los_Angeles": "LA, San Francisco, Seattle, San Diego, Las Vegas, Portland, Silicon Valley, California",
    "America/Chicago": "Dallas, Houston, Austin, Minneapolis, New Orleans, Texas",
    "America/Denver": "Salt Lake City, Boulder",
    "America/Edmonton": "Calgary",
    "America/Sao_Paulo": "Rio de Janeiro, Rio, Brasilia",
    "Asia/Kolkata": "Mumbai, Delhi, New Delhi, Bangalore, Bengaluru, Chennai, Hyderabad, Pune, India",
    "Asia/Shanghai": "Beijing, Shenzhen, Guangzhou, China",
    "Asia/Tokyo": "Osaka, Kyoto, Japan",
    "Asia/Seoul": "Busan, South Korea, Korea",
    "Asia/Dubai": "Abu Dhabi",
    "Asia/Jerusalem": "Tel Aviv, Israel",
    "Asia/Ho_Chi_Minh": "Hanoi",
    "Australia/Sydney": "Canberra",
    "Europe/Berlin": "Munich, Frankfurt, Hamburg, Cologne, Germany",
    "Europe/London": "Manchester, Edinburgh, Oxford, Cambridge, UK, England",
    "Europe/Madrid": "Barcelona, Spain",
    "Europe/Paris": "Lyon, Marseille, France",
    "Europe/Rome": "Milan, Florence, Venice, Naples, Italy",
    "Europe/Zurich": "Geneva, Basel, Bern, Switzerland",
    "Europe/Amsterdam": "Rotterdam, The Hague",
    "Europe/Moscow": "Saint Petersburg, St Petersburg",
    "Africa/Johannesburg": "Cape Town",
}
_NOT_CITIES = word_set(
    """act center central east east-indiana eastern easter easterisland factory general gmt0 greenwich hongkong knox
    lhi michigan mountain navajo north pacific prc rok roc south troll universal west yancowinna zulu"""
)
_FIRST_WORD = re.compile(r"(?<![\w/])\w+")
_NAME_END = re.compile(r"(?![\w/])")
_FIXED = re.compile(r"(?:GMT|UTC|Etc/|SystemV|posix|right)", re.IGNORECASE)
_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = _MONTH_NAMES.split()
_MONTH = "|".join(f"{month}|{month[:3]}" for month in _MONTHS)
_NUMBER_NAMES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty"""
_NUMBER_WORDS = {word: number for number, word in enumerate(_NUMBER_NAMES.split())}
_UP_TO = "{1,4000}"
"""Length of quoted text: without a bound, a page of single quotes takes minutes."""
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


@record
class Entity:
    """A part of a request: `value` is the argument that it would be, `text` the original text."""

    kind: EntityKind
    value: Any
    text: str
    start: int
    end: int


@cache
def zone_names() -> dict[str, str]:
    """Return time zones by the names in use for them, in lower case."""
    names: dict[str, str] = {}
    zones = available_timezones()
    for zone in sorted(zones):
        if "/" in zone and not _FIXED.match(zone):
            leaf = zone.rsplit("/", 1)[1]
            if leaf.lower() not in _NOT_CITIES:
                names.setdefault(leaf.replace("_", " ").lower(), zone)
    for zone, cities in _CITIES.items():
        names.update({city.lower(): zone for city in cities.split(", ")})
    names.update({zone.lower(): zone for zone in zones if "/" in zone})
    names.update({"utc": "UTC", "gmt": "GMT"})
    return names


@cache
def _longest_names() -> dict[str, int]:
    """Return the length of the longest name by its first word."""
    longest: dict[str, int] = {}
    for name in zone_names():
        first = _FIRST_WORD.findall(name)[0]
        longest[first] = max(longest.get(first, 0), len(name))
    return longest


def find_zones(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each time zone name in the text; of names with the same start, the longest.

    By lookup: compiling a pattern of all names takes longer than searching any request.
    """
    names, longest = zone_names(), _longest_names()
    position = 0
    for match in _FIRST_WORD.finditer(text):
        start = match.start()
        length = longest.get(match.group().lower(), 0)
        if start < position:
            continue
        for end in range(min(len(text), start + length), start, -1):
            if text[start:end].lower() in names and _NAME_END.match(text, end):
                yield start, end
                position = end
                break


def find_entities(text: str) -> list[Entity]:
    """Return the entities of a text, in its order and without overlaps, at most `MAX_ENTITIES`."""
    taken = [False] * len(text)
    found: list[Entity] = []
    for entity in _find_candidates(text):
        if not any(taken[entity.start : entity.end]):
            taken[entity.start : entity.end] = [True] * (entity.end - entity.start)
            found.append(entity)
    if not any(entity.kind is EntityKind.NUMBER for entity in found):
        found += [entity for entity in _find_number_words(text) if not any(taken[entity.start : entity.end])]
    return sorted(found, key=lambda entity: entity.start)[:MAX_ENTITIES]


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
    """Convert `3 pm` to `15:00`."""
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
    """Convert `January 5th, 2026` to `2026-01-05`; return an ISO date unchanged."""
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
