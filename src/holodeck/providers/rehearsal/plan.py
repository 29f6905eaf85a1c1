"""What a request asks for, step by step: for each step the tool that fits best and the arguments that were found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from holodeck.lib.limits import MAX_REHEARSED_CHARS
from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.arguments import FilledArguments, fill_arguments
from holodeck.providers.rehearsal.extract import Entity, EntityKind, find_entities
from holodeck.providers.rehearsal.ranking import RankedTool, rank_tools
from holodeck.providers.rehearsal.stemming import stems, synonyms_of
from holodeck.providers.tool_schemas import adapt_tool

# In one turn: a person names a few things, not a hundred.
MAX_REHEARSED_CALLS = 8


_LOOKED_AT = 10
"""Tools whose arguments are tried; the right one is among the first three nearly always."""
_TAKEN, _MISSING, _SPARE, _LONELY = 1.2, 1.6, 2.0, 0.8
_RARE_THING = 2.2
"""A thing that found its field adds; a missing argument, a thing without a field and a list of one cost."""
_WORDS_ENOUGH = 2
"""Words in common that make a match without the tool's name."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One thing that is asked for: a tool with its arguments, and what is missing before it can be called."""

    tool: ToolSpec
    calls: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]
    score: float


def plan_steps(request: str, tools: Sequence[ToolSpec], *, is_forced: bool = False) -> list[Step]:
    """The steps of a request; empty when no tool fits. `is_forced`: a tool must be called, so the nearest will do."""
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
    """The tool that fits one thing best, with its arguments."""
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
    """An address, a zone or a number says more about the tool than a path: few tools take one."""
    return 0.0 if entity.kind not in _TELLING else 1.0 if entity.kind in _COMMON else _RARE_THING


def _resolve_pronouns(part: str, earlier: str) -> str:
    """ "it" and "there" stand for the last thing that an earlier part of the request named."""
    if not earlier or any(thing.kind in _TELLING for thing in find_entities(part)):
        return part
    things = [thing for thing in find_entities(earlier) if thing.kind in _TELLING]
    places = [thing for thing in things if thing.kind is not EntityKind.QUOTED] or things
    if not places:
        return part
    meant = f'"{places[-1].text}"' if places[-1].kind is EntityKind.QUOTED else places[-1].text
    return _POINTS_BACK.sub(lambda _: meant, part, count=1)


def _is_fit(ranked: RankedTool, filled: FilledArguments) -> bool:
    """Whether the tool is meant at all, and not only the nearest of tools that are not."""
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
    """`add 1 and 2 and list /data`: two steps, when each half is complete on its own and they are different tools."""
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
    """Whether a half begins with a word of its tool, as a request of its own does."""
    words = stems(half)
    return bool(words) and bool({words[0], *synonyms_of(words[0])} & set(stems(step.tool.name)))
