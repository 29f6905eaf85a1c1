"""Checks of an answer as text: what it contains, what it must not contain, and what it must be.

Similarity is that of the character n-grams that two texts share, without a model and without a network. It is chrF2 as
in "chrF: character n-gram F-score for automatic MT evaluation" (Popovic, 2015) and as sacreBLEU computes it, on texts
in lower case. It sees letters, not meanings: a negation hardly changes it, and a synonym does.

Regular expressions are searched in a process of its own. A pattern such as `(a+)+$` can take years on a text that a
model chose, and Python cannot interrupt a search. The process ends itself after its CPU time; the pattern that it was
busy with is the one without an answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from holodeck.evaluation.verdict import CheckResult
from holodeck.lib.limits import KIB
from holodeck.lib.line_splitter import LineSplitter
from holodeck.lib.system.process import spawn_process

# Characters of the longest n-grams: about a word. chrF was found to agree best with people at 6.
MAX_ORDER = 6
# Weight of recall against precision. With 2, an answer that says more than the expected text loses little.
BETA = 2
# Characters that are compared: a longer answer would take seconds, on the event loop.
MAX_COMPARED_CHARS = 20_000


def score_similarity(answer: str, expected: str) -> float:
    """Return chrF2 of an answer, from 0 (no common character) to 1 (the same text).

    Case, white space and the style of quotes do not count. Texts are cut to `MAX_COMPARED_CHARS`.
    """
    hypothesis, reference = _letters_of(answer), _letters_of(expected)
    if not hypothesis or not reference:
        return float(hypothesis == reference)
    # An order for which one of the texts is too short says nothing.
    orders = range(1, min(MAX_ORDER, len(hypothesis), len(reference)) + 1)
    precision = recall = 0.0
    for order in orders:
        found, wanted = _count_ngrams(hypothesis, order), _count_ngrams(reference, order)
        common = (found & wanted).total()
        precision += common / found.total() / len(orders)
        recall += common / wanted.total() / len(orders)
    weighted = BETA**2 * precision + recall
    return (1 + BETA**2) * precision * recall / weighted if weighted else 0.0


def check_similarity(answer: str, expected: str, at_least: float) -> CheckResult:
    """Check that the answer resembles the expected text."""
    score = score_similarity(answer, expected)
    passed = score >= at_least
    comparison = "at least" if passed else "less than"
    return CheckResult(
        name="similar",
        passed=passed,
        reason=f"the answer has a similarity of {score:.2f}, {comparison} {at_least:g}, to: {expected}",
        score=score,
    )


def _letters_of(text: str) -> str:
    return fold_text(text[:MAX_COMPARED_CHARS]).replace(" ", "")


def _count_ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))


# Seconds for all of it, for a process that gets no CPU. It ends itself long before, by its CPU time.
SEARCH_TIMEOUT = 60.0

_PROGRAM = Path(__file__).with_name("pattern_program.py")
_READY = b"ready"


async def check_matches(answer: str, patterns: Sequence[str]) -> CheckResult:
    """Check that each pattern is found in the answer."""
    try:
        found = await _search_patterns(answer, patterns)
    except OSError as error:
        reason = f"the answer could not be searched for patterns: {error}"
        return CheckResult(name="matches", passed=False, reason=reason)
    if len(found) < len(patterns):
        slow = patterns[len(found)]
        reason = f"the search for /{slow}/ in the answer took too long: write the pattern without nested repetition"
        return CheckResult(name="matches", passed=False, reason=reason)
    missing = [f"/{pattern}/" for pattern, is_found in zip(patterns, found, strict=True) if not is_found]
    reason = f"the answer does not match {', '.join(missing)}" if missing else "the answer matches"
    return CheckResult(name="matches", passed=not missing, reason=reason)


async def _search_patterns(text: str, patterns: Sequence[str]) -> list[bool]:
    """Return for each pattern whether it is found, up to the one whose search was ended. Raises `OSError`."""
    lines: list[bytes] = []
    ended = asyncio.Event()
    output = LineSplitter(
        limit=KIB,
        on_line=lambda line: lines.append(bytes(line)),
        on_dropped=lambda *_: None,
        on_end=ended.set,
    )
    argv = [sys.executable, "-I", str(_PROGRAM)]
    process = await spawn_process(argv, env={}, cwd="/", stdout=output, stdin=asyncio.BaseProtocol())
    try:
        async with asyncio.timeout(SEARCH_TIMEOUT):
            # The pipe takes it all before the program reads: the transport buffers what does not fit.
            process.stdin.write(json.dumps({"patterns": list(patterns), "text": text}).encode() + b"\n")
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        process.kill()
        await process.close()
    if not lines or lines[0] != _READY:
        raise OSError("the process that searches for patterns did not start")
    return [line == b"true" for line in lines[1:]]


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
    """Return whether the answer has these words, not in longer words. Punctuation at their ends does not count."""
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
