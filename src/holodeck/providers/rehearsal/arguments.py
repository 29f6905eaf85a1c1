"""The arguments of a tool from the text of a request. Values are taken from the text, never invented.

`fill_arguments` matches entities of the request with the fields of the tool, by their form (`_LOOKS`), by words beside
them that name a field, and by direction (from, to). Then it fills booleans, enumerations and free text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.extract import Entity, EntityKind, zone_names
from holodeck.providers.rehearsal.ranking import blank_entities, find_list_words, find_marked_word, find_phrase
from holodeck.providers.rehearsal.schema_fields import Field, Role, list_fields
from holodeck.providers.rehearsal.stemming import stem, stem_set, stems

# Scores of the kind of an entity for the role of a field. Five is certain; below one, another hint is required.
_LOOKS: dict[Role, dict[EntityKind, float]] = {
    Role.URL: {EntityKind.URL: 5, EntityKind.PATH: 3, EntityKind.QUOTED: 2},
    Role.EMAIL: {EntityKind.EMAIL: 5},
    Role.ZONE: {EntityKind.ZONE: 5, EntityKind.QUOTED: 2},
    Role.CLOCK: {EntityKind.CLOCK: 5, EntityKind.QUOTED: 1},
    Role.DATE: {EntityKind.DATE: 5, EntityKind.QUOTED: 1},
    Role.PATTERN: {EntityKind.GLOB: 5, EntityKind.QUOTED: 3, EntityKind.PATH: 1},
    Role.PATH: {EntityKind.PATH: 5, EntityKind.QUOTED: 2.5},
    Role.REVISION: {EntityKind.REVISION: 5, EntityKind.QUOTED: 2},
    Role.NUMBER: {EntityKind.NUMBER: 5},
    Role.TEXT: {
        EntityKind.QUOTED: 4,
        EntityKind.NAME: 1.5,
        EntityKind.ZONE: 1,
        EntityKind.REVISION: 0.9,
        EntityKind.EMAIL: 0.5,
        EntityKind.NUMBER: 0.3,
    },
}
_LABEL, _DESCRIBED, _DIRECTION, _SHAPE = 3.0, 1.0, 1.5, 1.0
_SURE = 1.0
"""The lowest score with which an entity fills a field."""
_ORIGIN = stem_set("from source src old origin start base before")
_GOAL = stem_set("to target destination dest dst new end after")
_ORIGIN_WORDS = re.compile(
    r"\b(?:from|rename|move|copy|replace|change|between|of)\s+(?:the\s+\w+\s+|file\s+)?$", re.IGNORECASE
)
_GOAL_WORDS = re.compile(r"(?:\b(?:to|into|as|with|in|by)|->|→)\s+(?:the\s+\w+\s+|file\s+)?$", re.IGNORECASE)
_FOLDERS = stem_set("dir directory folder repo repository root")
_BEFORE, _AFTER = 28, 24
"""Characters before and after an entity that are searched for its purpose."""
_DOMAIN = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z]{2,6}(?:/\S*)?", re.IGNORECASE)
_NEGATION = re.compile(r"\b(?:no|not|without|don't|do not|never|disable|off|skip)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_SAYS_LITTLE = stem_set("is has include included enable enabled with should use allow show return")
"""Words in the name of a boolean field that do not describe it."""
_SWITCHES = frozenset({"on", "enabled", "enable", "active", "power"})
_OFF = re.compile(r"\b(?:off|disabled?|deactivated?)\b", re.IGNORECASE)
_ON = re.compile(r"\b(?:turn|switch|put)\b.*\bon\b|\bon\s*[.!?]?\s*$|\b(?:enabled?|activated?)\b", re.IGNORECASE)
_NAMED_AS = re.compile(r"\b(?:as|by|in|of type)\s+(?:an?\s+)?$", re.IGNORECASE)
_AROUND = 28
"""Characters before an enumeration value that are searched for its field."""
_LOOSE = frozenset({Role.TEXT, Role.NUMBER})
"""Roles that almost any entity fits: an optional field of these roles has to be named in the text."""
_NO_WORDS = frozenset({EntityKind.PATH, EntityKind.URL, EntityKind.EMAIL})
_MARKED = 2.0
_ASSIGNED = re.compile(r"([\w-]+)=\s*[\"']?\Z")
_YEARS = range(1900, 2100)


@record
class FilledArguments:
    """The arguments that the request contains, and the names of required ones that it does not."""

    arguments: Mapping[str, Any]
    missing: tuple[str, ...]
    used: tuple[Entity, ...]
    unused: tuple[Entity, ...]
    """Entities that fit no field."""
    aptness: float
    """Score of the tool by how well its fields were filled."""
    alternatives: tuple[Mapping[str, Any], ...] = ()
    """Arguments of further calls, if the request names several values for the only required field."""


def score_fit(field: Field, entity: Entity, text: str) -> float:
    """Return how well an entity fits a field; 0 if it does not."""
    looks = _LOOKS.get(field.role, {}).get(entity.kind, 0.0)
    if not looks or value_for(field, entity) is None:
        return 0.0
    before = text[max(0, entity.start - _BEFORE) : entity.start]
    after = re.split(r"[,.;]", text[entity.end : entity.end + _AFTER])[0]
    score = (
        looks
        + _score_label(field, entity, before, after)
        + score_direction(field, before)
        + _score_shape(field, entity)
    )
    return score if score >= _SURE else 0.0


def is_labelled(field: Field, entity: Entity, text: str) -> bool:
    """Return whether a word beside the entity names the field."""
    before = text[max(0, entity.start - _BEFORE) : entity.start]
    after = re.split(r"[,.;]", text[entity.end : entity.end + _AFTER])[0]
    return _score_label(field, entity, before, after) > 0


def value_for(field: Field, entity: Entity) -> Any:
    """Return the entity as an argument of this field, or None if it cannot be one."""
    value = entity.value
    if field.role is Role.NUMBER:
        return _to_number(field, value)
    if field.role is Role.URL and entity.kind is not EntityKind.URL:
        return _to_url(entity.text)
    if field.role is Role.ZONE and entity.kind is EntityKind.QUOTED:
        return zone_names().get(entity.text.lower())
    return value if field.role is Role.ZONE or entity.kind in {EntityKind.CLOCK, EntityKind.DATE} else entity.text


def _to_number(field: Field, value: Any) -> int | float | None:
    if field.schema.get("type") == "integer" and isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, (int, float)) else None


def _to_url(written: str) -> str | None:
    """Return `example.com` as a URL; None for a file name."""
    if "://" in written:
        return written if urlsplit(written).netloc else None
    return f"https://{written}" if _DOMAIN.fullmatch(written) else None


def _score_label(field: Field, entity: Entity, before: str, after: str) -> float:
    near = set(stems(" ".join(before.split()[-2:])))
    if entity.kind is EntityKind.NUMBER:
        near |= set(stems(" ".join(after.split()[:2])))
    if near & field.labels:
        return _LABEL
    described = set(stems(str(field.schema.get("description", ""))))
    return _DESCRIBED * len(near & described) if field.role is Role.NUMBER else 0.0


def score_direction(field: Field, before: str) -> float:
    """Score whether the words before an entity (from, to) have the direction of the field's name."""
    words = {stem(word) for word in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", str(field.path[-1])).lower())}
    is_origin, is_goal = bool(words & _ORIGIN), bool(words & _GOAL)
    if is_origin == is_goal:
        return 0.0
    pattern, other = (_ORIGIN_WORDS, _GOAL_WORDS) if is_origin else (_GOAL_WORDS, _ORIGIN_WORDS)
    return _DIRECTION if pattern.search(before) else -_DIRECTION if other.search(before) else 0.0


def score_aptness(field: Field, entity: Entity, text: str, tool_name: str) -> float:
    """Score an assigned entity beyond its form: whether it is labelled, and whether a path is a file or a folder."""
    labelled = 0.5 if is_labelled(field, entity, text) else 0.0
    if entity.kind is not EntityKind.PATH or field.role is not Role.PATH:
        return labelled
    words = set(stems(tool_name)) | field.labels
    wants_folder, wants_file = bool(words & _FOLDERS), stem("file") in words
    if wants_folder == wants_file:
        return labelled
    # A file may have no extension, such as Makefile, so its absence costs nothing.
    if wants_file:
        return labelled + (_SHAPE if _has_ending(entity) else 0.0)
    return labelled + (-_SHAPE if _has_ending(entity) else _SHAPE)


def _has_ending(entity: Entity) -> bool:
    return "." in entity.text.rsplit("/", 1)[-1].strip(".")


def _score_shape(field: Field, entity: Entity) -> float:
    """Score a path by its extension: a folder has none, a file has one."""
    if field.role is not Role.PATH or entity.kind is not EntityKind.PATH:
        return 0.0
    has_ending = _has_ending(entity)
    wants_folder = bool(field.labels & _FOLDERS)
    wants_file = stem("file") in field.labels
    return _SHAPE if (wants_folder and not has_ending) or (wants_file and has_ending) else 0.0


def parse_boolean(field: Field, text: str) -> bool | None:
    """Return True if the request names the field, False if it negates it, None if it does not name it."""
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
    """Yield enumeration values that the request names. Each position of the text is used for one field only."""
    taken: list[range] = []
    for field in fields:
        found = [
            (match, value)
            for match, value in _find_enum_values(field, text)
            if not any(match.start() in span for span in taken)
            and (field.is_required or _is_meant(field, text, match, tool_name))
        ]
        if not found:
            continue
        best = max(found, key=lambda each: (score_direction(field, _text_before(text, each[0])), -each[0].start()))
        chosen = found if field.is_many else [best]
        taken += [range(*match.span()) for match, _ in chosen]
        yield field, [value for _, value in chosen] if field.is_many else best[1]


def _find_enum_values(field: Field, text: str) -> list[tuple[re.Match[str], Any]]:
    """Return the values in the request with their positions; of overlapping ones, the longer."""
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
    """Return whether an optional choice is meant: the text also names the field, or a word of the tool follows."""
    others = set(stems(text[: match.start()] + " " + text[match.end() :]))
    following = stems(" ".join(text[match.end() :].split()[:1]))
    is_before_noun = bool(set(following) & set(stems(tool_name)))
    return bool(field.labels & others) or is_before_noun or bool(_NAMED_AS.search(_text_before(text, match)))


def _text_before(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - _AROUND) : match.start()]


def fill_arguments(tool: ToolSpec, text: str, found: Sequence[Entity]) -> FilledArguments:
    """Fill the fields of a tool from a request and its entities."""
    filler = _ArgumentFiller(tool, text, found)
    filler.fill_marked()
    filler.fill_from_entities()
    filler.fill_from_words()
    return filler.build_result()


class _ArgumentFiller:
    def __init__(self, tool: ToolSpec, text: str, found: Sequence[Entity]) -> None:
        self._tool, self._text, self._found = tool, text, list(found)
        self._fields = list_fields(tool.parameters)
        self._values: dict[Field, Any] = {}
        self._used: list[Entity] = []
        self._aptness = 0.0

    def fill_marked(self) -> None:
        """Fill required fields with words that the request labels: `of type person`, `branch main`."""
        quoted = blank_entities(self._text, [thing for thing in self._found if thing.kind is EntityKind.QUOTED])
        for field in (field for field in self._fields if field.is_required):
            match = find_marked_word(field, quoted) if field.role in {Role.TEXT, Role.REVISION} else None
            if match:
                self._values[field] = match["word"]
                self._aptness += _MARKED
                start, end = match.span("word")
                self._found = [thing for thing in self._found if thing.end <= start or thing.start >= end]

    def fill_from_entities(self) -> None:
        """Assign each entity to the field that it fits best; between equals, the order of both decides."""
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
        """Fill constants, booleans, enumerations and free text from the remaining words."""
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
                phrase = None if value else find_phrase(field, self._tool, hidden, is_only=is_only)
                self._assign_if_found(field, value or ([phrase] if phrase and field.is_many else phrase))

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
        """Return the fields to which the request assigns the entity by name: `width=3`."""
        match = _ASSIGNED.search(self._text, max(0, entity.start - MAX_TOOL_NAME_CHARS), entity.start)
        return [field for field in self._fields if match and match[1].lower() == str(field.path[-1]).lower()]

    def _is_only_number(self, field: Field, entity: Entity) -> bool:
        numeric = [each for each in self._fields if each.role is Role.NUMBER]
        numbers = [each for each in self._found if each.kind is EntityKind.NUMBER]
        is_year = isinstance(entity.value, int) and entity.value in _YEARS
        return field.role is Role.NUMBER and len(numeric) == 1 and len(numbers) == 1 and not is_year

    def _clock_bonus(self, field: Field, entity: Entity) -> float:
        """Score a time zone by its distance to a time of day: the nearest zone is the source."""
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
    """Build the nested arguments. An optional object that lacks a required part is omitted."""
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
