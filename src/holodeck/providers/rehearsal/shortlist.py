"""Which tools a request may mean: words of the request against names, descriptions, fields and values of the tools."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.lib.limits import MAX_SCHEMA_DEPTH
from holodeck.models.exchange import ToolSpec
from holodeck.providers.rehearsal.words import meanings, stems

# How much a word is worth where it stands. The name is what the author chose with most care.
_NAME, _VALUE, _FIRST_SENTENCE, _FIELD, _REST = 3.0, 1.6, 1.5, 1.0, 0.4
_SYNONYM = 0.55
_COVERAGE = 3.0
"""For a tool whose whole name is in the request: `list_directory` before `list_directory_with_sizes`."""
_LEAD = 1.35
"""For the first word of a request: it is mostly the verb, and the verb is the tool."""
_DEPRECATED = 0.5

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A tool and how well it fits; `has_name` and `matched` tell a real match from words that all texts share."""

    tool: ToolSpec
    score: float
    matched: frozenset[str]
    has_name: bool


def shortlist(query: str, tools: Sequence[ToolSpec], limit: int) -> list[ToolSpec]:
    """The tools that fit a request best, best first; those without a word in common come last, in their order."""
    return [ranked.tool for ranked in rank(query, tools)[: max(limit, 0)]]


def rank(query: str, tools: Sequence[ToolSpec]) -> list[Ranked]:
    """Every tool with its score, best first."""
    indexed = [_index(tool) for tool in tools]
    seen = Counter(word for words in indexed for word in words)
    rarity = {word: 1 + math.log((1 + len(tools)) / (1 + count)) for word, count in seen.items()}
    wanted = stems(query)
    ranked = [_score(tool, words, wanted, rarity) for tool, words in zip(tools, indexed, strict=True)]
    return sorted(ranked, key=lambda each: -each.score)


def _score(tool: ToolSpec, words: Mapping[str, float], wanted: Sequence[str], rarity: Mapping[str, float]) -> Ranked:
    score, matched, hits = 0.0, set(), set()
    for position, word in enumerate(dict.fromkeys(wanted)):
        worth, hit = _best(word, words, rarity)
        if hit:
            score += worth * (_LEAD if position == 0 else 1)
            matched.add(word)
            hits.add(hit)
    name = set(stems(tool.name))
    named = name & hits
    score += _COVERAGE * len(named) / max(len(name), 1)
    if "DEPRECATED" in tool.description:
        score *= _DEPRECATED
    return Ranked(tool=tool, score=score, matched=frozenset(matched), has_name=bool(named))


def _best(word: str, words: Mapping[str, float], rarity: Mapping[str, float]) -> tuple[float, str]:
    """What a word of the request is worth for a tool, itself or as one of its other meanings."""
    candidates = [(words[word] * rarity[word], word)] if word in words else []
    candidates += [(_SYNONYM * words[other] * rarity[other], other) for other in meanings(word) if other in words]
    return max(candidates, default=(0.0, ""))


def _index(tool: ToolSpec) -> dict[str, float]:
    """The stems of a tool, each with the worth of the best place where it stands."""
    first, *rest = _SENTENCE_END.split(tool.description.strip(), maxsplit=1)
    places = [(_NAME, tool.name), (_FIRST_SENTENCE, first), *((_REST, text) for text in rest)]
    places += list(_schema_texts(tool.parameters, MAX_SCHEMA_DEPTH))
    words: dict[str, float] = {}
    for worth, text in places:
        for word in stems(text):
            words[word] = max(words.get(word, 0.0), worth)
    return words


def _schema_texts(schema: object, depth: int) -> Iterator[tuple[float, str]]:
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    properties = schema.get("properties")
    for name, field in properties.items() if isinstance(properties, Mapping) else ():
        yield _FIELD, str(name)
        yield from _schema_texts(field, depth - 1)
    if isinstance(schema.get("description"), str):
        yield _REST, schema["description"]
    for value in _values(schema):
        yield _VALUE, value
    yield from _schema_texts(schema.get("items"), depth - 1)


def _values(schema: Mapping[str, Any]) -> list[str]:
    values = schema.get("enum")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
