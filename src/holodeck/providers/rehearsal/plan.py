"""Splits a request into steps, and finds the best tool with its arguments for each.

The score of a tool is its rank by words, plus the entities that its fields took, minus missing arguments and unused
entities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from holodeck.lib.limits import MAX_REHEARSED_CHARS
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.arguments import FilledArguments, fill_arguments
from holodeck.providers.rehearsal.extract import Entity, EntityKind, find_entities
from holodeck.providers.rehearsal.ranking import RankedTool, rank_tools
from holodeck.providers.rehearsal.stemming import stems, synonyms_of
from holodeck.providers.tool_schemas.adapt import adapt_tool

# Calls and steps of one request: users name a few things, not a hundred.
MAX_REHEARSED_CALLS = 8

_LOOKED_AT = 10
"""Tools whose arguments are filled; the right one is nearly always among the first three."""
# Weights: for an entity in a field; against a missing argument, an unused entity, and a list of one element.
_TAKEN, _MISSING, _SPARE, _LONELY = 1.2, 1.6, 2.0, 0.8
_RARE_THING = 2.2
"""Weight of an entity of a rare kind, such as a URL."""
_WORDS_ENOUGH = 2
"""Common words with which a tool matches without its name."""
_TELLING = frozenset(
    {
        EntityKind.URL,
        EntityKind.EMAIL,
        EntityKind.PATH,
        EntityKind.GLOB,
        EntityKind.ZONE,
        EntityKind.CLOCK,
        EntityKind.NUMBER,
        EntityKind.QUOTED,
        EntityKind.REVISION,
    }
)
_COMMON = frozenset({EntityKind.PATH, EntityKind.QUOTED, EntityKind.REVISION})

_NEXT = re.compile(
    r"(?:[,;]\s{0,3}|\.\s{1,3}|\s)(?:and\s{1,3})?(?:then|after that|afterwards|next|finally)\b,?\s{0,3}"
    r"|;\s{1,3}|(?<=[.?!])\s{1,3}(?=[A-Z])",
    re.IGNORECASE,
)
_JOINED = re.compile(r",?\s{1,3}and\s{1,3}(?:also\s{1,3})?", re.IGNORECASE)
_POINTS_BACK = re.compile(
    r"\b(?:it|its|that|there|them|this|the same|the (?:file|folder|directory|repo|page))\b", re.IGNORECASE
)


@record
class Step:
    """One step of a request: a tool, the arguments of its calls, and the arguments that are missing."""

    tool: ToolSpec
    calls: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]
    score: float


def plan_steps(request: str, tools: Sequence[ToolSpec], *, is_forced: bool = False) -> list[Step]:
    """Return the steps of a request; empty if no tool fits. `is_forced`: return the nearest tool in any case."""
    if not tools:
        return []
    text = request[:MAX_REHEARSED_CHARS]
    parts = [part for part in _NEXT.split(text) if part and part.strip()]
    steps = _find_steps(parts, tools) if 1 < len(parts) <= MAX_REHEARSED_CALLS else []
    whole = find_step(text, tools, is_forced=is_forced)
    if len(steps) == len(parts) and len(parts) > 1:
        return steps
    if len(parts) == 1 and whole:
        return _split_joined(text, tools, whole)
    return [whole] if whole else steps[:1]


def find_step(text: str, tools: Sequence[ToolSpec], *, is_forced: bool = False) -> Step | None:
    """Return the tool that fits a text best, with its arguments; None if none fits."""
    found = find_entities(text)
    candidates = rank_tools(text, tools)[:_LOOKED_AT]
    best: tuple[float, RankedTool, FilledArguments] | None = None
    for ranked in candidates:
        filled = fill_arguments(adapt_tool(ranked.tool, "generic").spec, text, found)
        score = ranked.score + _score_filled(filled)
        if not is_forced and not _is_fit(ranked, filled):
            continue
        if best is None or score > best[0]:
            best = (score, ranked, filled)
    if best is None:
        return None
    score, ranked, filled = best
    calls = (filled.arguments, *filled.alternatives)[:MAX_REHEARSED_CALLS]
    return Step(tool=ranked.tool, calls=() if filled.missing else calls, missing=filled.missing, score=score)


def _score_filled(filled: FilledArguments) -> float:
    repeated = len(filled.alternatives) * max(map(_weight_of, filled.used), default=0.0)
    spare = sum(map(_weight_of, filled.unused)) - repeated
    taken = sum(map(_weight_of, filled.used)) + repeated + filled.aptness
    lonely = sum(isinstance(value, list) and len(value) == 1 for value in filled.arguments.values())
    return _TAKEN * taken - _LONELY * lonely - _MISSING * len(filled.missing) - _SPARE * spare


def _weight_of(entity: Entity) -> float:
    """Return how much an entity says about the tool: few tools take an address, a zone or a number, many a path."""
    return 0.0 if entity.kind not in _TELLING else 1.0 if entity.kind in _COMMON else _RARE_THING


def _resolve_pronouns(part: str, earlier: str) -> str:
    """Replace "it" or "there" by the last entity of the earlier parts of the request."""
    if not earlier or any(thing.kind in _TELLING for thing in find_entities(part)):
        return part
    entities = [entity for entity in find_entities(earlier) if entity.kind in _TELLING]
    unquoted = [entity for entity in entities if entity.kind is not EntityKind.QUOTED] or entities
    if not unquoted:
        return part
    last = unquoted[-1]
    replacement = f'"{last.text}"' if last.kind is EntityKind.QUOTED else last.text
    return _POINTS_BACK.sub(lambda _: replacement, part, count=1)


def _is_fit(ranked: RankedTool, filled: FilledArguments) -> bool:
    """Return whether the tool is really meant, and not only the nearest one."""
    if ranked.score <= 0 or ranked.is_unasked:
        return False
    if ranked.is_direct or len(ranked.matched) >= _WORDS_ENOUGH:
        return True
    if ranked.has_name:
        return bool(filled.used) or not filled.missing
    return any(thing.kind in {EntityKind.URL, EntityKind.EMAIL} for thing in filled.used)


def _find_steps(parts: Sequence[str], tools: Sequence[ToolSpec]) -> list[Step]:
    steps: list[Step] = []
    for index, part in enumerate(parts):
        step = find_step(_resolve_pronouns(part, " ".join(parts[:index])), tools)
        if step is None:
            return steps
        steps.append(step)
    return steps


def _split_joined(text: str, tools: Sequence[ToolSpec], whole: Step) -> list[Step]:
    """Split `add 1 and 2 and list /data` into two steps, if each half is complete and they use different tools."""
    for match in islice(_JOINED.finditer(text), MAX_REHEARSED_CALLS):
        halves = [text[: match.start()], text[match.end() :]]
        steps = _find_steps(halves, tools)
        is_split = len(steps) == len(halves) and steps[0].tool != steps[1].tool
        if (
            is_split
            and not any(step.missing for step in steps)
            and all(_has_leading_verb(half, step) for half, step in zip(halves, steps, strict=True))
        ):
            return steps
    return [whole]


def _has_leading_verb(half: str, step: Step) -> bool:
    """Return whether a half starts with a word of its tool's name, like a separate request."""
    words = stems(half)
    return bool(words) and bool({words[0], *synonyms_of(words[0])} & set(stems(step.tool.name)))
