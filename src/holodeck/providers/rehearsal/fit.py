"""How well a thing in a request fits a field of a tool: by what it looks like, and by the words around it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from holodeck.providers.rehearsal.fields import Field, Role
from holodeck.providers.rehearsal.findings import Finding, Kind
from holodeck.providers.rehearsal.words import stem, stem_set, stems
from holodeck.providers.rehearsal.zones import zone_names

# What a thing looks like, against what a field wants. Five is certain; below one it needs a word beside it.
_LOOKS: dict[Role, dict[Kind, float]] = {
    Role.URL: {Kind.URL: 5, Kind.PATH: 3, Kind.QUOTED: 2},
    Role.EMAIL: {Kind.EMAIL: 5},
    Role.ZONE: {Kind.ZONE: 5, Kind.QUOTED: 2},
    Role.CLOCK: {Kind.CLOCK: 5, Kind.QUOTED: 1},
    Role.DATE: {Kind.DATE: 5, Kind.QUOTED: 1},
    Role.PATTERN: {Kind.GLOB: 5, Kind.QUOTED: 3, Kind.PATH: 1},
    Role.PATH: {Kind.PATH: 5, Kind.QUOTED: 2.5},
    Role.REVISION: {Kind.REVISION: 5, Kind.QUOTED: 2},
    Role.NUMBER: {Kind.NUMBER: 5},
    Role.TEXT: {Kind.QUOTED: 4, Kind.NAME: 1.5, Kind.ZONE: 1, Kind.REVISION: 0.9, Kind.EMAIL: 0.5, Kind.NUMBER: 0.3},
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


def fit(field: Field, finding: Finding, text: str) -> float:
    """How well they fit; 0 when they do not."""
    looks = _LOOKS.get(field.role, {}).get(finding.kind, 0.0)
    if not looks or value_for(field, finding) is None:
        return 0.0
    before = text[max(0, finding.start - _BEFORE) : finding.start]
    after = re.split(r"[,.;]", text[finding.end : finding.end + _AFTER])[0]
    score = looks + _label(field, finding, before, after) + direction(field, before) + _shape(field, finding)
    return score if score >= _SURE else 0.0


def is_labelled(field: Field, finding: Finding, text: str) -> bool:
    """Whether a word beside the thing names the field."""
    before = text[max(0, finding.start - _BEFORE) : finding.start]
    after = re.split(r"[,.;]", text[finding.end : finding.end + _AFTER])[0]
    return _label(field, finding, before, after) > 0


def value_for(field: Field, finding: Finding) -> Any:
    """The argument that the thing would be in this field, or None when it cannot be one."""
    value = finding.value
    if field.role is Role.NUMBER:
        return _number(field, value)
    if field.role is Role.URL and finding.kind is not Kind.URL:
        return _url(finding.text)
    if field.role is Role.ZONE and finding.kind is Kind.QUOTED:
        return zone_names().get(finding.text.lower())
    return value if field.role is Role.ZONE or finding.kind in {Kind.CLOCK, Kind.DATE} else finding.text


def _number(field: Field, value: Any) -> int | float | None:
    if field.schema.get("type") == "integer" and isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, (int, float)) else None


def _url(written: str) -> str | None:
    """`example.com` as an address; a file name is none."""
    if "://" in written:
        return written if urlsplit(written).netloc else None
    return f"https://{written}" if _DOMAIN.fullmatch(written) else None


def _label(field: Field, finding: Finding, before: str, after: str) -> float:
    near = set(stems(" ".join(before.split()[-2:])))
    if finding.kind is Kind.NUMBER:
        near |= set(stems(" ".join(after.split()[:2])))
    if near & field.labels:
        return _LABEL
    described = set(stems(str(field.schema.get("description", ""))))
    return _DESCRIBED * len(near & described) if field.role is Role.NUMBER else 0.0


def direction(field: Field, before: str) -> float:
    """Whether the words before a thing lead from it or to it, as the field's name does."""
    words = {stem(word) for word in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", str(field.path[-1])).lower())}
    is_origin, is_goal = bool(words & _ORIGIN), bool(words & _GOAL)
    if is_origin == is_goal:
        return 0.0
    pattern, other = (_ORIGIN_WORDS, _GOAL_WORDS) if is_origin else (_GOAL_WORDS, _ORIGIN_WORDS)
    return _DIRECTION if pattern.search(before) else -_DIRECTION if other.search(before) else 0.0


def aptness(field: Field, finding: Finding, text: str, tool_name: str) -> float:
    """What speaks for or against a thing that a field has taken, beyond its looks."""
    labelled = 0.5 if is_labelled(field, finding, text) else 0.0
    if finding.kind is not Kind.PATH or field.role is not Role.PATH:
        return labelled
    words = set(stems(tool_name)) | field.labels
    wants_folder, wants_file = bool(words & _FOLDERS), stem("file") in words
    if wants_folder == wants_file:
        return labelled
    if wants_file:  # a file may well have no ending, as Makefile has none
        return labelled + (_SHAPE if _has_ending(finding) else 0.0)
    return labelled + (-_SHAPE if _has_ending(finding) else _SHAPE)


def _has_ending(finding: Finding) -> bool:
    return "." in finding.text.rsplit("/", 1)[-1].strip(".")


def _shape(field: Field, finding: Finding) -> float:
    """A folder has no ending, a file has one."""
    if field.role is not Role.PATH or finding.kind is not Kind.PATH:
        return 0.0
    has_ending = _has_ending(finding)
    wants_folder = bool(field.labels & _FOLDERS)
    wants_file = stem("file") in field.labels
    return _SHAPE if (wants_folder and not has_ending) or (wants_file and has_ending) else 0.0
