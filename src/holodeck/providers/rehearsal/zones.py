"""Time zones that a person names: as IANA writes them, or by a city."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from zoneinfo import available_timezones

from holodeck.providers.rehearsal.stemming import word_set

# Cities that are asked for often and have no zone of their own name.
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


@cache
def zone_names() -> dict[str, str]:
    """What a person may write, in small letters, and the zone that it names."""
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
    """By the first word of a name: the length of the longest name that begins with it."""
    longest: dict[str, int] = {}
    for name in zone_names():
        first = _FIRST_WORD.findall(name)[0]
        longest[first] = max(longest.get(first, 0), len(name))
    return longest


def find_zones(text: str) -> Iterator[tuple[int, int]]:
    """Where each name of a zone begins and ends in the text; of two that begin at one place, the longer.

    By lookup: a pattern of all names takes longer to compile than any request takes to read.
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
