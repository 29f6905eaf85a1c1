"""Similarity of two texts by the character n-grams that they share: chrF, without a model and without a network.

It is chrF2 as in "chrF: character n-gram F-score for automatic MT evaluation" (Popovic, 2015) and as sacreBLEU computes
it, on texts in lower case. It sees letters, not meanings: a negation hardly changes it, and a synonym does.
"""

from __future__ import annotations

from collections import Counter

from holodeck.evaluation.check import CheckResult
from holodeck.evaluation.measures.text import fold_text

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
