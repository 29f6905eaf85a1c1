"""Arguments for a tool, taken from a request. What the request does not say is missing, never made up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.choices import find_choices, parse_boolean
from holodeck.providers.rehearsal.extract import Entity, EntityKind
from holodeck.providers.rehearsal.fit import is_labelled, score_aptness, score_fit, value_for
from holodeck.providers.rehearsal.phrases import blank_entities, find_list_words, find_marked_word, find_phrase
from holodeck.providers.rehearsal.schema_fields import Field, Role, list_fields

_LOOSE = frozenset({Role.TEXT, Role.NUMBER})
"""Roles that anything would fit: an optional field of them needs a word that names it."""
_NO_WORDS = frozenset({EntityKind.PATH, EntityKind.URL, EntityKind.EMAIL})
_MARKED = 2.0
_ASSIGNED = re.compile(r"([\w-]+)=\s*[\"']?\Z")
_YEARS = range(1900, 2100)


@dataclass(frozen=True, kw_only=True, slots=True)
class FilledArguments:
    """Arguments as far as the request gives them, and the names of required ones that it does not give."""

    arguments: Mapping[str, Any]
    missing: tuple[str, ...]
    used: tuple[Entity, ...]
    unused: tuple[Entity, ...]
    """Things in the request that no field took."""
    aptness: float
    """What speaks for this tool in how its fields were filled."""
    alternatives: tuple[Mapping[str, Any], ...] = ()
    """More calls of the same tool, when the request names several things for its one required field."""


def fill_arguments(tool: ToolSpec, text: str, found: Sequence[Entity]) -> FilledArguments:
    """What the request says for each field of the tool."""
    filling = _ArgumentFiller(tool, text, found)
    filling.fill_marked()
    filling.fill_from_entities()
    filling.fill_from_words()
    return filling.build_result()


class _ArgumentFiller:
    def __init__(self, tool: ToolSpec, text: str, found: Sequence[Entity]) -> None:
        self._tool, self._text, self._found = tool, text, list(found)
        self._fields = list_fields(tool.parameters)
        self._values: dict[Field, Any] = {}
        self._used: list[Entity] = []
        self._aptness = 0.0

    def fill_marked(self) -> None:
        """First the words that the request itself gives a name: `of type person`, `branch main`."""
        quoted = blank_entities(self._text, [thing for thing in self._found if thing.kind is EntityKind.QUOTED])
        for field in (field for field in self._fields if field.is_required):
            match = find_marked_word(field, quoted) if field.role in {Role.TEXT, Role.REVISION} else None
            if match:
                self._values[field] = match["word"]
                self._aptness += _MARKED
                start, end = match.span("word")
                self._found = [thing for thing in self._found if thing.end <= start or thing.start >= end]

    def fill_from_entities(self) -> None:
        """Give each thing to the field that it fits best; the order of both decides between equals."""
        open_fields = [field for field in self._fields if not field.is_many]
        fits = [
            (-self._score(field, thing), order, thing.start, field, thing)
            for order, field in enumerate(open_fields)
            for thing in self._found
        ]
        for score, _, _, field, thing in sorted(fits, key=lambda each: each[:3]):
            if score < 0 and field not in self._values and thing not in self._used:
                self._assign(field, value_for(field, thing), thing)
        for field in self._fields:
            if field.is_many:
                self._fill_many(field)

    def fill_from_words(self) -> None:
        """Then what is said in plain words: choices, yes and no, and text without quotes."""
        rest = blank_entities(self._text, self._found)
        for field in self._open_fields():
            if field.role is Role.CONSTANT and field.is_required:
                self._values[field] = field.schema["const"]
            elif field.role is Role.BOOLEAN:
                self._assign_if_found(field, parse_boolean(field, rest))
        seen = blank_entities(self._text, [thing for thing in self._found if thing.kind in _NO_WORDS])
        enumerated = [field for field in self._open_fields() if field.role is Role.CHOICE]
        self._values.update(find_choices(enumerated, seen, self._tool.name))
        hidden = blank_entities(self._text, self._used)
        for field in [field for field in self._open_fields() if field.is_required]:
            if field.role in {Role.TEXT, Role.REVISION, Role.PATTERN}:
                is_only = sum(other.is_required for other in self._open_fields()) == 1
                value = find_list_words(field, hidden) if field.is_many else None
                said = None if value else find_phrase(field, self._tool, hidden, is_only=is_only)
                self._assign_if_found(field, value or ([said] if said and field.is_many else said))

    def build_result(self) -> FilledArguments:
        missing = tuple(field.name for field in self._open_fields() if field.is_required)
        spare = tuple(thing for thing in self._found if thing not in self._used)
        return FilledArguments(
            arguments=_build_arguments(self._values, self._fields),
            missing=missing,
            used=tuple(self._used),
            aptness=self._aptness,
            unused=spare,
            alternatives=self._build_alternatives(spare) if not missing else (),
        )

    def _score(self, field: Field, entity: Entity) -> float:
        score = score_fit(field, entity, self._text)
        if score <= 0:
            return 0.0
        named = self._find_assigned_fields(entity)
        if named:
            return score + _MARKED if field in named else 0.0
        if not field.is_required and field.role in _LOOSE and not is_labelled(field, entity, self._text):
            return score / 10 if self._is_only_number(field, entity) else 0.0
        if field.role is Role.ZONE:
            score += self._clock_bonus(field, entity)
        return score if field.is_required else score / 2

    def _find_assigned_fields(self, entity: Entity) -> list[Field]:
        """The fields that the request itself assigns the thing to: `width=3`."""
        match = _ASSIGNED.search(self._text, max(0, entity.start - MAX_TOOL_NAME_CHARS), entity.start)
        return [field for field in self._fields if match and match[1].lower() == str(field.path[-1]).lower()]

    def _is_only_number(self, field: Field, entity: Entity) -> bool:
        numeric = [each for each in self._fields if each.role is Role.NUMBER]
        numbers = [each for each in self._found if each.kind is EntityKind.NUMBER]
        is_year = isinstance(entity.value, int) and entity.value in _YEARS
        return field.role is Role.NUMBER and len(numeric) == 1 and len(numbers) == 1 and not is_year

    def _clock_bonus(self, field: Field, entity: Entity) -> float:
        """A time belongs to the zone that stands nearest: that one is the source."""
        clocks = [each for each in self._found if each.kind is EntityKind.CLOCK]
        zones = [each for each in self._found if each.kind is EntityKind.ZONE]
        wanted = [each for each in self._fields if each.role is Role.ZONE]
        if not clocks or len(zones) < len(wanted) or len(wanted) == 1:
            return 0.0
        nearest = min(zones, key=lambda zone: _distance(zone, clocks[0]))
        is_source = field is wanted[0]
        return 1.0 if (entity == nearest) == is_source else 0.0

    def _fill_many(self, field: Field) -> None:
        free = [thing for thing in self._found if thing not in self._used]
        scored = [(self._score(field, thing), thing) for thing in free]
        best = max((score for score, _ in scored), default=0.0)
        kinds = {thing.kind for score, thing in scored if score > 0 and score == best}
        taken = [thing for score, thing in scored if score > 0 and thing.kind in kinds]
        if taken:
            self._values[field] = [value_for(field, thing) for thing in taken]
            self._used += taken
            self._aptness += min(score_aptness(field, thing, self._text, self._tool.name) for thing in taken)

    def _build_alternatives(self, unused: Sequence[Entity]) -> tuple[Mapping[str, Any], ...]:
        required = [field for field in self._fields if field.is_required]
        if len(required) != 1 or required[0].is_many or required[0].role in _LOOSE:
            return ()
        kinds = {thing.kind for thing in self._used}
        more = [
            value_for(required[0], thing)
            for thing in unused
            if thing.kind in kinds and score_fit(required[0], thing, self._text)
        ]
        return tuple(
            _build_arguments({**self._values, required[0]: value}, self._fields) for value in more if value is not None
        )

    def _open_fields(self) -> list[Field]:
        return [field for field in self._fields if field not in self._values]

    def _assign(self, field: Field, value: Any, entity: Entity) -> None:
        self._values[field] = value
        self._used.append(entity)
        self._aptness += score_aptness(field, entity, self._text, self._tool.name)

    def _assign_if_found(self, field: Field, value: Any) -> None:
        if value is not None:
            self._values[field] = value


def _distance(one: Entity, other: Entity) -> int:
    return max(one.start - other.end, other.start - one.end)


def _build_arguments(values: Mapping[Field, Any], all_fields: Sequence[Field]) -> dict[str, Any]:
    """The values at their places. An optional object of which a part is missing is left out whole."""
    lacking = {field.path[:-1] for field in all_fields if field.is_needed and field not in values}
    result: dict[str, Any] = {}
    for field, value in values.items():
        if not any(field.path[: len(path)] == path for path in lacking if path):
            _set_at_path(result, field.path, value)
    return result


def _set_at_path(into: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    here: Any = into
    for part, following in pairwise(path):
        fresh: Any = [{}] if following == 0 else {}
        here = here[0] if part == 0 else here.setdefault(part, fresh)
    here[path[-1]] = value
