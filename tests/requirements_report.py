"""`python tests/requirements_report.py` prints what may be marked delivered, and which test proves what."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from requirement_manifest import ManifestError, Requirements, load_requirements, summary
from requirement_proofs import Proofs, read_proofs, unknown_ids, unproved_ids


def main() -> int:
    """Print the report; 1 when the test run would fail."""
    try:
        requirements = load_requirements()
    except ManifestError as error:
        print(error)
        return 1
    proofs = read_proofs()
    problems = [*proofs.misplaced, *unknown_ids(requirements, proofs), *unproved_ids(requirements, proofs)]
    _print_part("delivered, by test", _delivered_by_test(requirements, proofs))
    _print_part("pending, but a test names it", _pending_with_tests(requirements, proofs))
    _print_part("problems", problems)
    print(summary(requirements))
    return 1 if problems else 0


def _pending_with_tests(requirements: Requirements, proofs: Proofs) -> Iterable[str]:
    tests = proofs.tests_by_id()
    for each in requirements.values():
        if each.status == "pending" and each.id in tests:
            yield f"{each.id}  {each.text}"
            yield from (f"    {test}" for test in tests[each.id])


def _delivered_by_test(requirements: Requirements, proofs: Proofs) -> Iterable[str]:
    ids_by_test: dict[str, list[str]] = {}
    for proof in dict.fromkeys(proofs.proofs):
        if proof.id in requirements and requirements[proof.id].status == "delivered":
            ids_by_test.setdefault(proof.test, []).append(proof.id)
    return (f"{test}  {' '.join(ids)}" for test, ids in ids_by_test.items())


def _print_part(title: str, lines: Iterable[str]) -> None:
    print(f"{title}:")
    for line in lines:
        print(f"  {line}")
    print()


if __name__ == "__main__":
    sys.exit(main())
