"""Arguments for a tool, taken from a request. What the request does not say is missing, never made up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.models.exchange import ToolSpec
from holodeck.providers.rehearsal.choices import boolean, choices
from holodeck.providers.rehearsal.fields import Field, Role, fields
from holodeck.providers.rehearsal.findings import Finding, Kind
from holodeck.providers.rehearsal.fit import aptness, fit, is_labelled, value_for
from holodeck.providers.rehearsal.phrases import blanked, marked, phrase, words_of_list

_LOOSE = frozenset({Role.TEXT, Role.NUMBER})
"""Roles that anything would fit: an optional field of them needs a word that names it."""
_NO_WORDS = frozenset({Kind.PATH, Kind.URL, Kind.EMAIL})
_MARKED = 2.0
_ASSIGNED = re.compile(r"([\w-]+)=\s*[\"']?\Z")
_YEARS = range(1900, 2100)


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """Arguments as far as the request gives them, and the names of required ones that it does not give."""

    arguments: Mapping[str, Any]
    missing: tuple[str, ...]
    used: tuple[Finding, ...]
    spare: tuple[Finding, ...]
    """Things in the request that no field took."""
    aptness: float
    """What speaks for this tool in how its fields were filled."""
    alternatives: tuple[Mapping[str, Any], ...] = ()
    """More calls of the same tool, when the request names several things for its one required field."""


def fill(tool: ToolSpec, text: str, found: Sequence[Finding]) -> Filled:
    """What the request says for each field of the tool."""
    filling = _Filling(tool, text, found)
    filling.take_marked()
    filling.take_things()
    filling.take_words()
    return filling.result()


class _Filling:
    def __init__(self, tool: ToolSpec, text: str, found: Sequence[Finding]) -> None:
        self._tool, self._text, self._found = tool, text, list(found)
        self._fields = fields(tool.parameters)
        self._values: dict[Field, Any] = {}
        self._used: list[Finding] = []
        self._aptness = 0.0

    def take_marked(self) -> None:
        """First the words that the request itself gives a name: `of type person`, `branch main`."""
        quoted = blanked(self._text, [thing for thing in self._found if thing.kind is Kind.QUOTED])
        for field in (field for field in self._fields if field.is_required):
            match = marked(field, quoted) if field.role in {Role.TEXT, Role.REVISION} else None
            if match:
                self._values[field] = match["word"]
                self._aptness += _MARKED
                start, end = match.span("word")
                self._found = [thing for thing in self._found if thing.end <= start or thing.start >= end]

    def take_things(self) -> None:
        """Give each thing to the field that it fits best; the order of both decides between equals."""
        open_fields = [field for field in self._fields if not field.is_many]
        fits = [
            (-self._worth(field, thing), order, thing.start, field, thing)
            for order, field in enumerate(open_fields)
            for thing in self._found
        ]
        for score, _, _, field, thing in sorted(fits, key=lambda each: each[:3]):
            if score < 0 and field not in self._values and thing not in self._used:
                self._give(field, value_for(field, thing), thing)
        for field in self._fields:
            if field.is_many:
                self._take_several(field)

    def take_words(self) -> None:
        """Then what is said in plain words: choices, yes and no, and text without quotes."""
        rest = blanked(self._text, self._found)
        for field in self._open():
            if field.role is Role.CONSTANT and field.is_required:
                self._values[field] = field.schema["const"]
            elif field.role is Role.BOOLEAN:
                self._set(field, boolean(field, rest))
        seen = blanked(self._text, [thing for thing in self._found if thing.kind in _NO_WORDS])
        enumerated = [field for field in self._open() if field.role is Role.CHOICE]
        self._values.update(choices(enumerated, seen, self._tool.name))
        hidden = blanked(self._text, self._used)
        for field in [field for field in self._open() if field.is_required]:
            if field.role in {Role.TEXT, Role.REVISION, Role.PATTERN}:
                is_only = sum(other.is_required for other in self._open()) == 1
                value = words_of_list(field, hidden) if field.is_many else None
                said = None if value else phrase(field, self._tool, hidden, is_only=is_only)
                self._set(field, value or ([said] if said and field.is_many else said))

    def result(self) -> Filled:
        missing = tuple(field.name for field in self._open() if field.is_required)
        spare = tuple(thing for thing in self._found if thing not in self._used)
        return Filled(
            arguments=_build(self._values, self._fields),
            missing=missing,
            used=tuple(self._used),
            aptness=self._aptness,
            spare=spare,
            alternatives=self._alternatives(spare) if not missing else (),
        )

    def _worth(self, field: Field, thing: Finding) -> float:
        score = fit(field, thing, self._text)
        if score <= 0:
            return 0.0
        named = self._assigned(thing)
        if named:
            return score + _MARKED if field in named else 0.0
        if not field.is_required and field.role in _LOOSE and not is_labelled(field, thing, self._text):
            return score / 10 if self._is_only_number(field, thing) else 0.0
        if field.role is Role.ZONE:
            score += self._beside_clock(field, thing)
        return score if field.is_required else score / 2

    def _assigned(self, thing: Finding) -> list[Field]:
        """The fields that the request itself assigns the thing to: `width=3`."""
        match = _ASSIGNED.search(self._text, max(0, thing.start - MAX_TOOL_NAME_CHARS), thing.start)
        return [field for field in self._fields if match and match[1].lower() == str(field.path[-1]).lower()]

    def _is_only_number(self, field: Field, thing: Finding) -> bool:
        numeric = [each for each in self._fields if each.role is Role.NUMBER]
        numbers = [each for each in self._found if each.kind is Kind.NUMBER]
        is_year = isinstance(thing.value, int) and thing.value in _YEARS
        return field.role is Role.NUMBER and len(numeric) == 1 and len(numbers) == 1 and not is_year

    def _beside_clock(self, field: Field, thing: Finding) -> float:
        """A time belongs to the zone that stands nearest: that one is the source."""
        clocks = [each for each in self._found if each.kind is Kind.CLOCK]
        zones = [each for each in self._found if each.kind is Kind.ZONE]
        wanted = [each for each in self._fields if each.role is Role.ZONE]
        if not clocks or len(zones) < len(wanted) or len(wanted) == 1:
            return 0.0
        nearest = min(zones, key=lambda zone: _distance(zone, clocks[0]))
        is_source = field is wanted[0]
        return 1.0 if (thing == nearest) == is_source else 0.0

    def _take_several(self, field: Field) -> None:
        free = [thing for thing in self._found if thing not in self._used]
        scored = [(self._worth(field, thing), thing) for thing in free]
        best = max((score for score, _ in scored), default=0.0)
        kinds = {thing.kind for score, thing in scored if score > 0 and score == best}
        taken = [thing for score, thing in scored if score > 0 and thing.kind in kinds]
        if taken:
            self._values[field] = [value_for(field, thing) for thing in taken]
            self._used += taken
            self._aptness += min(aptness(field, thing, self._text, self._tool.name) for thing in taken)

    def _alternatives(self, spare: Sequence[Finding]) -> tuple[Mapping[str, Any], ...]:
        required = [field for field in self._fields if field.is_required]
        if len(required) != 1 or required[0].is_many or required[0].role in _LOOSE:
            return ()
        kinds = {thing.kind for thing in self._used}
        more = [
            value_for(required[0], thing)
            for thing in spare
            if thing.kind in kinds and fit(required[0], thing, self._text)
        ]
        return tuple(_build({**self._values, required[0]: value}, self._fields) for value in more if value is not None)

    def _open(self) -> list[Field]:
        return [field for field in self._fields if field not in self._values]

    def _give(self, field: Field, value: Any, thing: Finding) -> None:
        self._values[field] = value
        self._used.append(thing)
        self._aptness += aptness(field, thing, self._text, self._tool.name)

    def _set(self, field: Field, value: Any) -> None:
        if value is not None:
            self._values[field] = value


def _distance(one: Finding, other: Finding) -> int:
    return max(one.start - other.end, other.start - one.end)


def _build(values: Mapping[Field, Any], all_fields: Sequence[Field]) -> dict[str, Any]:
    """The values at their places. An optional object of which a part is missing is left out whole."""
    lacking = {field.path[:-1] for field in all_fields if field.is_needed and field not in values}
    result: dict[str, Any] = {}
    for field, value in values.items():
        if not any(field.path[: len(path)] == path for path in lacking if path):
            _place(result, field.path, value)
    return result


def _place(into: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    here: Any = into
    for part, following in pairwise(path):
        fresh: Any = [{}] if following == 0 else {}
        here = here[0] if part == 0 else here.setdefault(part, fresh)
    here[path[-1]] = value
