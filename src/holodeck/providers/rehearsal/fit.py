"""How well a thing in a request fits a field of a tool: by what it looks like, and by the words around it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from holodeck.providers.rehearsal.extract import Entity, EntityKind
from holodeck.providers.rehearsal.schema_fields import Field, Role
from holodeck.providers.rehearsal.stemming import stem, stem_set, stems
from holodeck.providers.rehearsal.zones import zone_names

# What a thing looks like, against what a field wants. Five is certain; below one it needs a word beside it.
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
"""The least that fills a field."""

_ORIGIN = stem_set("from source src old origin start base before")
_GOAL = stem_set("to target destination dest dst new end after")
_ORIGIN_WORDS = re.compile(
    r"\b(?:from|rename|move|copy|replace|change|between|of)\s+(?:the\s+\w+\s+|file\s+)?$", re.IGNORECASE
)
_GOAL_WORDS = re.compile(r"(?:\b(?:to|into|as|with|in|by)|->|→)\s+(?:the\s+\w+\s+|file\s+)?$", re.IGNORECASE)
_FOLDERS = stem_set("dir directory folder repo repository root")
_BEFORE, _AFTER = 28, 24
"""Characters on either side of a thing that say what it is for."""
_DOMAIN = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z]{2,6}(?:/\S*)?", re.IGNORECASE)


def score_fit(field: Field, entity: Entity, text: str) -> float:
    """How well they fit; 0 when they do not."""
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
    """Whether a word beside the thing names the field."""
    before = text[max(0, entity.start - _BEFORE) : entity.start]
    after = re.split(r"[,.;]", text[entity.end : entity.end + _AFTER])[0]
    return _score_label(field, entity, before, after) > 0


def value_for(field: Field, entity: Entity) -> Any:
    """The argument that the thing would be in this field, or None when it cannot be one."""
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
    """`example.com` as an address; a file name is none."""
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
    """Whether the words before a thing lead from it or to it, as the field's name does."""
    words = {stem(word) for word in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", str(field.path[-1])).lower())}
    is_origin, is_goal = bool(words & _ORIGIN), bool(words & _GOAL)
    if is_origin == is_goal:
        return 0.0
    pattern, other = (_ORIGIN_WORDS, _GOAL_WORDS) if is_origin else (_GOAL_WORDS, _ORIGIN_WORDS)
    return _DIRECTION if pattern.search(before) else -_DIRECTION if other.search(before) else 0.0


def score_aptness(field: Field, entity: Entity, text: str, tool_name: str) -> float:
    """What speaks for or against a thing that a field has taken, beyond its looks."""
    labelled = 0.5 if is_labelled(field, entity, text) else 0.0
    if entity.kind is not EntityKind.PATH or field.role is not Role.PATH:
        return labelled
    words = set(stems(tool_name)) | field.labels
    wants_folder, wants_file = bool(words & _FOLDERS), stem("file") in words
    if wants_folder == wants_file:
        return labelled
    if wants_file:  # a file may well have no ending, as Makefile has none
        return labelled + (_SHAPE if _has_ending(entity) else 0.0)
    return labelled + (-_SHAPE if _has_ending(entity) else _SHAPE)


def _has_ending(entity: Entity) -> bool:
    return "." in entity.text.rsplit("/", 1)[-1].strip(".")


def _score_shape(field: Field, entity: Entity) -> float:
    """A folder has no ending, a file has one."""
    if field.role is not Role.PATH or entity.kind is not EntityKind.PATH:
        return 0.0
    has_ending = _has_ending(entity)
    wants_folder = bool(field.labels & _FOLDERS)
    wants_file = stem("file") in field.labels
    return _SHAPE if (wants_folder and not has_ending) or (wants_file and has_ending) else 0.0
