"""Finds unquoted text for the fields of a tool, word for word from the request."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.extract import Entity
from holodeck.providers.rehearsal.schema_fields import Field, Role
from holodeck.providers.rehearsal.stemming import stem, stem_set, stems, word_set

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
