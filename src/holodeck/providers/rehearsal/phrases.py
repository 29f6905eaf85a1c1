"""Text that a person wrote without quotes, yes and no, and choices: taken word for word from the request, or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holodeck.providers.rehearsal.fields import Field, Role
from holodeck.providers.rehearsal.findings import Finding
from holodeck.providers.rehearsal.words import stem, stems

_SAYING = r"(?:saying|that says|which says|that reads|reading|containing|with the (?:words?|text|message|contents?))"
_ABOUT = r"(?:about|regarding|for|on|into)"
_MARKERS: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(map(stem, names.split())), pattern)
    for names, pattern in (
        ("message text content contents body comment observation observations", rf"{_SAYING}:?\s+(?P<rest>.+)"),
        ("query topic subject search question keyword keywords term", rf"{_ABOUT}\s+(?P<rest>.+)"),
        ("name title branch entity names", r"(?:named|called)\s+(?P<word>[\w./-]+)"),
        ("branch", r"(?P<word>(?!(?:the|a|an|new|my|git|current|this|that|all|local|remote)\b)[\w./-]+)\s+branch\b"),
        ("branch", r"(?:switch|checkout|check out|go|change)\s+(?:back\s+)?to\s+(?P<word>[\w./-]+)"),
        (
            "branch revision target",
            r"(?:branch|revision|commit|with|against)\s+(?P<word>(?!in\b|on\b|of\b|the\b)[\w./-]+)",
        ),
        ("type kind", r"\b(?:of type|type)\s+(?P<word>[\w-]+)"),
    )
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
_NEGATION = re.compile(r"\b(?:no|not|without|don't|do not|never|disable|off|skip)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_VAGUE = frozenset(
    [
        "it",
        "this",
        "that",
        "them",
        "something",
        "anything",
        "nothing",
        "everything",
        "stuff",
        "thing",
        "things",
        "a",
        "an",
        "the",
        "there",
        "here",
        "one",
        "some",
    ]
)
_BOOLEAN_FILLER = frozenset(
    map(
        stem,
        ["is", "has", "include", "included", "enable", "enabled", "with", "should", "use", "allow", "show", "return"],
    )
)
_LONGEST_LIST_WORD = 40


def blanked(text: str, found: Iterable[Finding]) -> str:
    """The text with the things that were found in it hidden, so that their words mean nothing else."""
    for finding in found:
        text = text[: finding.start] + "\0" * (finding.end - finding.start) + text[finding.end :]
    return text


def phrase(field: Field, tool_name: str, text: str, *, is_only: bool) -> str | None:
    """The words that belong into a text field. `is_only`: no other field could claim the rest of the request."""
    for label in sorted(_spoken(field)):
        match = re.search(rf"\b{label}\s*(?:[:=]|\bis\b)\s*(?P<rest>[^,;\0]+)", text, re.IGNORECASE)
        if match:
            return _clean(match["rest"])
    for names, pattern in _MARKERS:
        if names & field.labels:
            match = re.search(pattern, text, re.IGNORECASE)
            if match and (value := _clean(match.groupdict().get("word") or match.groupdict().get("rest") or "")):
                return value
    if field.role is not Role.TEXT or not is_only:
        return None
    return _after_label(field, text) or _after_verb(tool_name, text)


def words_of_list(field: Field, text: str) -> list[str]:
    """`alice, bob and carol` after a word that names the field."""
    for label in sorted(_spoken(field)):
        match = re.search(rf"\b{label}\s*:?\s+(?P<rest>[^.;\0]+)", text, re.IGNORECASE)
        if match:
            parts = [_clean(part) for part in re.split(r",|\band\b", match["rest"])]
            return [part for part in parts if part and len(part) <= _LONGEST_LIST_WORD]
    return []


def boolean(field: Field, text: str) -> bool | None:
    """True when the request names it, False when it names it with a "no", None when it does not."""
    explicit = re.search(
        rf"\b{re.escape(str(field.path[-1]))}\s*(?:[:=]|\bis\b|\bto\b)?\s*(true|false|yes|no|on|off)\b",
        text,
        re.IGNORECASE,
    )
    if explicit:
        return explicit[1].lower() in {"true", "yes", "on"}
    wanted = field.labels - _BOOLEAN_FILLER
    places = {stem(match.group()): match.start() for match in re.finditer(r"[A-Za-z]+", text)}
    if not wanted or not wanted <= set(places):
        return None
    start = min(places[word] for word in wanted)
    return not _NEGATION.search(text[:start])


def choice(field: Field, text: str) -> object | None:
    """The value of an enumeration that the request names; an optional one only where the field is meant, too."""
    values = sorted(field.schema.get("enum", ()), key=lambda value: -len(str(value)))
    for value in values:
        words = r"[\s_-]*".join(map(re.escape, re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", str(value)))) or re.escape(
            str(value)
        )
        match = re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)
        if match and (field.is_required or _is_meant(field, text, match)):
            return value if not isinstance(value, (dict, list)) else None
    return None


def _is_meant(field: Field, text: str, match: re.Match[str]) -> bool:
    others = set(stems(text[: match.start()] + " " + text[match.end() :]))
    return bool(field.labels & others) or bool(
        re.search(r"\b(?:as|by|in|of type)\s+(?:an?\s+)?$", text[: match.start()], re.IGNORECASE)
    )


def _spoken(field: Field) -> set[str]:
    """The field's name as a person may write it."""
    name = str(field.path[-1])
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]", " ", name)
    return {re.escape(name), r"\s+".join(map(re.escape, words.split()))}


def _after_label(field: Field, text: str) -> str | None:
    for label in sorted(_spoken(field)):
        match = re.search(rf"\b{label}\s+(?P<rest>[^\0]+)", text, re.IGNORECASE)
        if match:
            return _clean(match["rest"])
    return None


def _after_verb(tool_name: str, text: str) -> str | None:
    """`echo good morning`: what follows the word that is also in the tool's name."""
    plain = _POLITE.sub("", text)
    first = re.match(r"[A-Za-z]+", plain)
    if not first or stem(first.group()) not in stems(tool_name):
        return None
    return _clean(plain[first.end() :])


def _clean(words: str) -> str | None:
    """Without loose ends, and nothing when it only points at something else."""
    kept = _LEAD_IN.sub("", words.split("\0", maxsplit=1)[0]).strip()
    if "\0" in words:
        kept = _LOOSE_END.sub("", " " + kept).strip()
    kept = kept.strip(" .,;:?!\"'")
    meaningful = [word for word in re.findall(r"\w+", kept.lower()) if word not in _VAGUE]
    return kept if meaningful else None
