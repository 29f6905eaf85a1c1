"""Rank of tools by a request: its words, compared with the names, descriptions, fields and values of the tools.

`find_phrase` finds unquoted text for the fields of a tool, word for word from the request.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holodeck.lib.limits import MAX_REHEARSED_CHARS, MAX_SCHEMA_DEPTH
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.extract import Entity, EntityKind, find_entities
from holodeck.providers.rehearsal.schema_fields import Field, Role
from holodeck.providers.rehearsal.stemming import stem, stem_set, stems, synonyms_of, word_set

_SAYING = r"(?:saying|that says|which says|that reads|reading|containing|with the (?:words?|text|message|contents?))"
_ABOUT = r"(?:about|regarding|for|on|into)"
_WORD = r"(?!(?:the|a|an|new|my|git|current|this|that|all|local|remote|in|on|of|to|for|from|with|it)\b)[\w./~^-]*[\w~^]"
_AFTER_WORDS = (
    (stem_set("message text content contents body comment"), rf"{_SAYING}:?\s+(?P<rest>.+)"),
    (stem_set("query topic subject search question keyword term"), rf"{_ABOUT}\s+(?P<rest>.+)"),
)
_MARKERS = (
    (stem_set("branch"), rf"\bbranch\s+(?:named\s+|called\s+)?(?P<word>{_WORD})"),
    (stem_set("branch"), rf"\b(?P<word>{_WORD})\s+branch\b"),
    (stem_set("branch"), rf"\b(?:switch|checkout|check out|go|change)\s+(?:back\s+)?to\s+(?P<word>{_WORD})"),
    (stem_set("revision target"), rf"\b(?:revision|commit|branch|against|with)\s+(?P<word>{_WORD})"),
    (stem_set("type kind"), rf"\b(?:of type|type)\s+(?P<word>{_WORD})"),
    (stem_set("name title names"), rf"\b(?:named|called)\s+(?P<word>{_WORD})"),
)
_POLITE = re.compile(
    r"^\s*(?:(?:please|can you|could you|would you|i want you to|i'd like you to|now|then|just)\s+)+", re.IGNORECASE
)
_LOOSE_END = re.compile(
    r"(?:\s+(?:to|in|into|at|from|with|on|of|for|and|the|file|folder|directory|by|as))+\s*$", re.IGNORECASE
)
_LEAD_IN = re.compile(
    r"^\s*(?:(?:that|the|a|an|me|back|for|about|with|on|string|text|message|following)\b\s*)+:?\s*", re.IGNORECASE
)
_THING = re.compile(r"[~.]{0,2}/|\w+://|\S+@\S+\.|[\w-]+\.\w+$")
"""A path or an address. It was not assigned as one, so it is not free text either."""
_VAGUE = word_set(
    "it this that them something anything nothing everything stuff thing things a an the there here one some"
)
_LONGEST_LIST_WORD = 40
# Weights of a word by its position in a tool. Authors choose the name with most care.
_NAME, _VALUE, _FIRST_SENTENCE, _FIELD, _REST = 3.0, 1.6, 1.5, 1.0, 0.4
_SYNONYM = 0.55
_COVERAGE = 3.5
"""For the share of the tool's name in the request: `list_directory` before `list_directory_with_sizes`."""
_LEAD = 1.35
"""Factor for the first word of a request: it is mostly the verb, which names the tool."""
_DEPRECATED = 0.5
_RARITY = 0.6
_VERB = 5.5
"""For a request that starts with a verb of the tool's name or description, except for very common verbs."""
_UNNAMED = 1.0
"""Penalty for each word of the tool's name that is not in the request."""
_PLAIN_VERBS = stem_set("show get return list display give")
_UNASKED = 4.0
"""Penalty for a tool that changes something, if the request has no word for that."""
_CHANGES = stem_set("create delete remove write move edit add update send commit reset toggle")
_OPAQUE = frozenset({EntityKind.URL, EntityKind.EMAIL, EntityKind.PATH, EntityKind.QUOTED, EntityKind.ZONE})
"""Kinds of entities whose words say nothing about the tool: `server.log` does not ask for a log."""
_HINTS = {EntityKind.URL: "url", EntityKind.EMAIL: "email", EntityKind.ZONE: "timezone"}
_ASKING = "when|what|which|who|whose|where|why|how|is|are|was|were|do|does|did|has|have"
_QUESTION = re.compile(rf"\s*(?:{_ASKING})\b", re.IGNORECASE)
_FILE_ENDING = re.compile(r"\w\.\w+$")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


def blank_entities(text: str, found: Iterable[Entity]) -> str:
    """Return the text with entities replaced by NUL characters, so that their words are not interpreted again."""
    for entity in found:
        text = text[: entity.start] + "\0" * (entity.end - entity.start) + text[entity.end :]
    return text


def find_marked_word(field: Field, text: str) -> re.Match[str] | None:
    """Return a match whose group `word` is the word that the request labels for the field: `of type person`."""
    for names, pattern in _MARKERS:
        if names & field.heads and not field.is_many:
            match = re.search(pattern, text, re.IGNORECASE)
            if match:
                return match
    return None


def find_phrase(field: Field, tool: ToolSpec, text: str, *, is_only: bool) -> str | None:
    """Return the words for a text field, or None. `is_only`: no other field needs the rest of the request."""
    for label in sorted(_spoken_names(field)):
        match = re.search(rf"\b{label}\s*(?:[:=]|\bis\b)\s*(?P<rest>[^,;\0]+)", text, re.IGNORECASE)
        if match:
            return _clean_phrase(match["rest"])
    for names, pattern in _AFTER_WORDS:
        match = re.search(pattern, text, re.IGNORECASE) if names & field.labels else None
        if match and (value := _clean_phrase(match["rest"])):
            return value
    if field.role is not Role.TEXT or not is_only:
        return None
    phrase = _after_label(field, text) or _after_verb(tool, text)
    return None if phrase and _THING.match(phrase) else phrase


def find_list_words(field: Field, text: str) -> list[str]:
    """Return the elements of a list such as `alice, bob and carol` after the name of the field."""
    for label in sorted(_spoken_names(field)):
        match = re.search(rf"\b{label}\s*:?\s+(?P<rest>[^.;\0]+)", text, re.IGNORECASE)
        if match:
            parts = [_clean_phrase(part) for part in re.split(r",|\band\b", match["rest"])]
            return [part for part in parts if part and len(part) <= _LONGEST_LIST_WORD]
    return []


def _spoken_names(field: Field) -> set[str]:
    """Return patterns for the field's name as written and as separate words."""
    name = str(field.path[-1])
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]", " ", name)
    return {re.escape(name), r"\s+".join(map(re.escape, words.split()))}


def _after_label(field: Field, text: str) -> str | None:
    for label in sorted(_spoken_names(field)):
        match = re.search(rf"\b{label}\s+(?P<rest>[^\0]+)", text, re.IGNORECASE)
        if match:
            return _clean_phrase(match["rest"])
    return None


def _after_verb(tool: ToolSpec, text: str) -> str | None:
    """Return the text after a verb that is in the tool's name: `echo good morning`."""
    plain = _POLITE.sub("", text)
    first = re.match(r"[A-Za-z]+", plain)
    if not first or stem(first.group()) not in stems(tool.name):
        return None
    rest = plain[first.end() :]
    # `git checkout main` names the tool with two words.
    while (next_word := re.match(r"\s+[A-Za-z]+", rest)) and stem(next_word.group().strip()) in stems(tool.name):
        rest = rest[next_word.end() :]
    phrase = _clean_phrase(rest)
    # "commit the staged changes" repeats the purpose of the tool, and is no argument.
    return None if phrase and set(stems(phrase)) & set(stems(tool.description)) else phrase


def _clean_phrase(text: str) -> str | None:
    """Remove filler words at both ends; return None for text of pronouns only."""
    phrase = _LEAD_IN.sub("", text.split("\0", maxsplit=1)[0]).strip()
    if "\0" in text:
        phrase = _LOOSE_END.sub("", " " + phrase).strip()
    phrase = phrase.strip(" .,;:?!\"'")
    meaningful = [word for word in re.findall(r"\w+", phrase.lower()) if word not in _VAGUE]
    return phrase if meaningful else None


@record
class RankedTool:
    """A tool with its score, and facts that distinguish a real match from common words."""

    tool: ToolSpec
    score: float
    matched: frozenset[str]
    has_name: bool
    """Whether a word of the request, or a synonym, is in the tool's name."""
    is_direct: bool
    """Whether a word of the request itself is in the tool's name."""
    is_unasked: bool
    """Whether the tool changes something, and the request is a question."""


@record
class _Query:
    words: tuple[str, ...]
    hints: tuple[str, ...]
    """Words derived from the kinds of entities: an address suggests a tool that takes one."""
    is_question: bool


def shortlist_tools(query: str, tools: Sequence[ToolSpec], limit: int) -> list[ToolSpec]:
    """Return the `limit` tools that fit a request best, best first; equal ones stay in their order."""
    return [ranked.tool for ranked in rank_tools(query, tools)[: max(limit, 0)]]


def rank_tools(query: str, tools: Sequence[ToolSpec]) -> list[RankedTool]:
    """Return every tool with its score, best first."""
    query = query[:MAX_REHEARSED_CHARS]
    indexed = [_index_tool(tool) for tool in tools]
    seen = Counter(word for words in indexed for word in words)
    rarity = {word: 1 + _RARITY * math.log((1 + len(tools)) / (1 + count)) for word, count in seen.items()}
    found = find_entities(query)
    plain_text = blank_entities(query, [each for each in found if each.kind in _OPAQUE])
    hints = " ".join(map(_hint_of, found))
    parsed = _Query(
        words=stems(plain_text) or stems(query),
        hints=stems(hints),
        is_question=bool(_QUESTION.match(query)),
    )
    ranked = [_score_tool(tool, words, parsed, rarity) for tool, words in zip(tools, indexed, strict=True)]
    return sorted(ranked, key=lambda each: -each.score)


def _score_tool(tool: ToolSpec, words: Mapping[str, float], query: _Query, rarity: Mapping[str, float]) -> RankedTool:
    score, matched, hits = 0.0, set(), set()
    for position, word in enumerate(dict.fromkeys(query.words)):
        worth, hit = _score_word(word, words, rarity)
        if hit:
            score += worth * (_LEAD if position == 0 else 1)
            matched.add(word)
            hits.add(hit)
    score += sum(_score_word(hint, words, rarity)[0] for hint in dict.fromkeys(query.hints))
    name = set(stems(tool.name))
    named = name & hits
    score += _COVERAGE * len(named) / max(len(name), 1)
    score -= _UNNAMED * len(name - hits - _PLAIN_VERBS)
    score += _verb_worth(tool, query.words[0]) if query.words and not query.is_question else 0.0
    if name & _CHANGES and not named & _CHANGES:
        score -= _UNASKED
    if "DEPRECATED" in tool.description:
        score *= _DEPRECATED
    return RankedTool(
        tool=tool,
        score=score,
        matched=frozenset(matched),
        has_name=bool(named),
        is_direct=bool(named & matched),
        is_unasked=query.is_question and bool(name & _CHANGES),
    )


def _hint_of(entity: Entity) -> str:
    if entity.kind is EntityKind.PATH and _FILE_ENDING.search(entity.text):
        return "file"
    return _HINTS.get(entity.kind, "")


def _verb_worth(tool: ToolSpec, lead: str) -> float:
    """Score a verb at the start of a request: `Unstage` means "Unstages all changes", not `diff_unstaged`."""
    if lead in _PLAIN_VERBS:
        return 0.0
    verbs = {stem(word) for word in re.split(r"[^A-Za-z]+", tool.name) if not word.endswith("ed")}
    verbs |= set(stems(tool.description)[:1])
    return _VERB if lead in verbs else _VERB * _SYNONYM if verbs & set(synonyms_of(lead)) else 0.0


def _score_word(word: str, words: Mapping[str, float], rarity: Mapping[str, float]) -> tuple[float, str]:
    """Return the best score of a word or one of its synonyms in a tool, and the word that matched."""
    candidates = [(words[word] * rarity[word], word)] if word in words else []
    candidates += [(_SYNONYM * words[other] * rarity[other], other) for other in synonyms_of(word) if other in words]
    return max(candidates, default=(0.0, ""))


def _index_tool(tool: ToolSpec) -> dict[str, float]:
    """Return the stems of a tool, each with the weight of its best position."""
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
    for value in _enum_texts(schema):
        yield _VALUE, value
    yield from _schema_texts(schema.get("items"), depth - 1)


def _enum_texts(schema: Mapping[str, Any]) -> list[str]:
    values = schema.get("enum")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
