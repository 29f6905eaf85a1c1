"""Checks of an answer as text: what it contains, what it must not contain, and what it must be."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from holodeck.evaluation.check import CheckResult

_PLAIN_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
# Marks at the ends of an expected answer that say nothing: `On Friday.` is in `It is on Friday, I think`.
_END_MARKS = ".,;:!?'\" "


def collapse_space(text: str) -> str:
    """Return the text without white space at its ends, and with one space in place of any other white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def fold_text(text: str) -> str:
    """Return a text for comparisons in which case, white space and the style of quotes do not count."""
    return collapse_space(text).translate(_PLAIN_QUOTES).casefold()


def check_contains(answer: str, texts: Sequence[str]) -> CheckResult:
    """Check that all texts are in the answer."""
    folded = fold_text(answer)
    missing = [text for text in texts if fold_text(text) not in folded]
    reason = f"the answer does not have: {_quote_texts(missing)}" if missing else f"found {_quote_texts(texts)}"
    return CheckResult(name="contains", passed=not missing, reason=reason)


def check_forbidden_texts(answer: str, texts: Sequence[str]) -> CheckResult:
    """Check that none of the texts is in the answer."""
    folded = fold_text(answer)
    present = [text for text in texts if fold_text(text) in folded]
    reason = f"the answer has what is forbidden: {_quote_texts(present)}" if present else "no forbidden text"
    return CheckResult(name="forbidden", passed=not present, reason=reason)


def check_equals(answer: str, expected: str) -> CheckResult:
    """Check that the answer is this text, apart from white space."""
    passed = collapse_space(answer) == collapse_space(expected)
    reason = "the answer is the expected text" if passed else f"the answer is not: {_quote_texts([expected])}"
    return CheckResult(name="equals", passed=passed, reason=reason)


def has_whole_words(answer: str, words: str) -> bool:
    """Whether the words are in the answer, not as a part of longer words. Punctuation at their ends does not count."""
    folded = fold_text(answer)
    wanted = fold_text(words)
    wanted = wanted.strip(_END_MARKS) or wanted
    position = folded.find(wanted)
    while position >= 0:
        end = position + len(wanted)
        starts_inside = position > 0 and _are_one_word(folded[position - 1], wanted[0])
        ends_inside = end < len(folded) and _are_one_word(wanted[-1], folded[end])
        if not starts_inside and not ends_inside:
            return True
        position = folded.find(wanted, position + 1)
    return False


def _are_one_word(before: str, after: str) -> bool:
    return (before.isalnum() or before == "_") and (after.isalnum() or after == "_")


def _quote_texts(texts: Sequence[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)
