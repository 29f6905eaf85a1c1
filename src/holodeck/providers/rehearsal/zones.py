"""Time zones that a person names: as IANA writes them, or by a city."""

from __future__ import annotations

import re
from functools import cache
from zoneinfo import available_timezones

from holodeck.providers.rehearsal.words import word_set

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
_FIXED = re.compile(r"(?:GMT|UTC|Etc/|SystemV|posix|right)", re.IGNORECASE)


@cache
def zone_names() -> dict[str, str]:
    """What a person may write, in small letters, and the zone that it names."""
    names: dict[str, str] = {}
    for zone in sorted(available_timezones()):
        if "/" in zone and not _FIXED.match(zone):
            leaf = zone.rsplit("/", 1)[1]
            if leaf.lower() not in _NOT_CITIES:
                names.setdefault(leaf.replace("_", " ").lower(), zone)
    for zone, cities in _CITIES.items():
        names.update({city.lower(): zone for city in cities.split(", ")})
    names.update({zone.lower(): zone for zone in available_timezones() if "/" in zone})
    names.update({"utc": "UTC", "gmt": "GMT"})
    return names


@cache
def zone_pattern() -> re.Pattern[str]:
    """Finds every name of a zone in a text, the longest first."""
    names = sorted(zone_names(), key=len, reverse=True)
    return re.compile(r"(?<![\w/])(?:" + "|".join(map(re.escape, names)) + r")(?![\w/])", re.IGNORECASE)
