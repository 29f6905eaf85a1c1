"""What HoloDeck promises, read from requirements.toml: every id once, well-formed, with a sentence and a status."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

TESTS = Path(__file__).parent
MANIFEST_NAME = "requirements.toml"

Status = Literal["delivered", "pending"]
STATUSES: tuple[Status, ...] = ("delivered", "pending")

WELL_FORMED_ID = re.compile(
    r"""00[0-4]:(?:FR|SC)-\d{3}                     # 000:FR-010
      | 00[0-4]:US[1-9]\d*-[1-9]\d*                 # 000:US2-3, scenario 3 of user story 2
      | 00[0-4]:(?:EDGE|DEC|PRAC|REUSE|ENT|RULE|STATE|ERR|EX|MIG|TRANSPORT|ENV|LEGACY)-[1-9]\d*
      | D-[1-9]\d*                                  # a design decision
    """,
    re.VERBOSE,
)


class ManifestError(Exception):
    """requirements.toml itself is wrong; the message lists every line that is."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One statement that a test can prove."""

    id: str
    text: str
    status: Status


Requirements: TypeAlias = Mapping[str, Requirement]


def load_requirements(tests: Path = TESTS) -> Requirements:
    """The requirements of a tests folder by id, in the order of the file."""
    path = tests / MANIFEST_NAME
    try:
        # TOML itself refuses a key that is written twice.
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ManifestError(f"{path.name} cannot be read: {error}") from error
    wrong = [problem for id_, entry in entries.items() if (problem := _what_is_wrong(id_, entry))]
    if wrong:
        raise ManifestError(f"{path.name} is malformed:\n" + "\n".join(wrong))
    return {id_: Requirement(id=id_, text=entry["text"], status=entry["status"]) for id_, entry in entries.items()}


def summary(requirements: Requirements) -> str:
    """The line that ends every test run."""
    counts = {status: sum(each.status == status for each in requirements.values()) for status in STATUSES}
    return "requirements: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def _what_is_wrong(id_: str, entry: object) -> str | None:
    if not WELL_FORMED_ID.fullmatch(id_):
        return f"{id_!r} is not an id: write it like 000:FR-010, 000:US2-3, 003:ERR-1 or D-7"
    if not isinstance(entry, dict) or set(entry) != {"text", "status"}:
        return f'{id_} needs exactly {{ text = "...", status = "pending" }}'
    fields = cast("dict[str, object]", entry)
    if not isinstance(fields["text"], str) or not fields["text"].strip():
        return f"{id_} has no text: say in one sentence what is promised"
    if fields["status"] not in STATUSES:
        return f"{id_} has status {fields['status']!r}: use {' or '.join(STATUSES)}"
    return None
