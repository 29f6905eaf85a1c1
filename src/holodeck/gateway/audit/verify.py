"""Verification of the chain of an audit log, over all of its files in order.

`verify_files` reads lines and stops at the first that is not what the chain says: changed, missing before it, moved, or
inserted. Lines that were removed at the end leave no trace in the files themselves: `expected_hash`, `expected_seq` and
`stored_end` say what must be there. A gateway that found its file without its end has written `end_missing`: the lines
after it are checked, and the chain is broken there nevertheless.

Torn text counts as no line. It is part of a good log where a `recovered` line follows that has its digest, and at the
end of a file, where a crash left it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holodeck.gateway.audit.entry import (
    END_MISSING,
    FIRST_PREV,
    RECOVERED,
    ROTATED,
    ChainPosition,
    decode_line,
    parse_line,
    position_of,
)
from holodeck.lib.record import record

# Bytes of one line that are read at a time: many times the longest line, and a file without newlines stays bounded.
MAX_LINE_BYTES = 1024 * 1024


@record
class Break:
    """The place at which a chain is broken."""

    file: str
    line: int
    """Counted from 1."""
    reason: str


@record
class Verification:
    """The findings in the files of an audit log."""

    entries: int = 0
    first_seq: int = 0
    first_time: str = ""
    first_hash: str = ""
    last_seq: int = 0
    last_time: str = ""
    last_hash: str = ""
    notes: tuple[str, ...] = ()
    broken: Break | None = None

    @property
    def is_good(self) -> bool:
        return self.broken is None


def verify_files(
    files: Sequence[Path],
    *,
    keys: Sequence[bytes],
    expected_hash: str | None = None,
    expected_seq: int | None = None,
    stored_end: ChainPosition | None = None,
    on_progress: Callable[[int], None] = lambda entries: None,
) -> Verification:
    """Check the chain through `files`, the oldest first. A line of any of the `keys` is genuine.

    `expected_hash`: the hash of a line that must be among them. `expected_seq`: the number that the last line has at
    least. `stored_end`: a line that the gateway has stored as its last; there may be later ones. `on_progress` is
    called with the number of lines so far. Raises `OSError` for a file that cannot be read.
    """
    checker = _ChainChecker(keys, expected_hash)
    for file in files:
        checker.begin_file(file)
        for number, raw in _read_lines(file):
            if not checker.check_line(number, raw):
                return checker.build_verification()
            on_progress(checker.entries)
        if not checker.end_file():
            break
    return checker.build_verification(expected_seq, stored_end)


def read_entries(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the lines of files as data, in order. Whether they are genuine, and a whole chain, is not checked."""
    for file in files:
        for _, raw in _read_lines(file):
            fields = parse_line(raw.removesuffix(b"\n"))
            if fields is not None:
                yield fields


class _ChainChecker:
    """The state of one verification."""

    def __init__(self, keys: Sequence[bytes], expected_hash: str | None) -> None:
        self.entries = 0
        self._keys = keys
        self._expected_hash = expected_hash
        self._has_expected_hash = False
        self._file = Path()
        self._is_file_begin = True
        self._first: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._notes: list[str] = []
        self._broken: Break | None = None
        self._missing_end: Break | None = None
        """The first line by which a gateway says that the end before it was missing."""
        self._torn = b""
        self._torn_line = 0
        """The number of the first line that is none of the chain. 0: there is none."""

    def begin_file(self, file: Path) -> None:
        self._file = file
        self._is_file_begin = True

    def check_line(self, number: int, raw: bytes) -> bool:
        """Check the next line, with its newline. False: the chain is broken here."""
        fields = decode_line(raw.removesuffix(b"\n"), self._keys)
        if fields is None:
            self._torn_line = self._torn_line or number
            self._torn += raw
            return len(self._torn) <= MAX_LINE_BYTES or self._break_at_torn()
        if self._torn_line and not self._is_recovery(fields):
            return self._break_at_torn()
        reason = self._find_gap(fields)
        if reason:
            return self._break(number, reason)
        if self._torn_line:
            self._notes.append(
                f"{self._file}:{self._torn_line}: {len(self._torn)} bytes of torn text, which line {number} mentions."
            )
            self._torn, self._torn_line = b"", 0
        if lost := fields.get("lost"):
            self._notes.append(f"{self._file}:{number}: {lost} entries could not be written before this line.")
        if fields.get("event") == END_MISSING and self._missing_end is None:
            reason = f"lines up to {fields.get('expected_seq')} were missing when the gateway started here"
            self._missing_end = Break(file=str(self._file), line=number, reason=reason)
        self._add_line(fields)
        return True

    def end_file(self) -> bool:
        """Check what follows the last line of a file. False: the chain is broken here."""
        if not self._torn_line:
            return True
        # A write is torn before its newline.
        if b"\n" in self._torn:
            return self._break_at_torn()
        place, size = f"{self._file}:{self._torn_line}", len(self._torn)
        self._notes.append(f"{place}: the last line is torn ({size} bytes), as a crash or a full disk leaves it.")
        self._torn, self._torn_line = b"", 0
        return True

    def build_verification(
        self, expected_seq: int | None = None, stored_end: ChainPosition | None = None
    ) -> Verification:
        self._broken = self._broken or self._missing_end
        if self._broken is None:
            self._check_expectations(expected_seq, stored_end)
        return Verification(
            entries=self.entries,
            first_seq=self._first.get("seq", 0),
            first_time=str(self._first.get("time", "")),
            first_hash=str(self._first.get("hash", "")),
            last_seq=self._last.get("seq", 0),
            last_time=str(self._last.get("time", "")),
            last_hash=str(self._last.get("hash", "")),
            notes=tuple(self._notes),
            broken=self._broken,
        )

    def _check_expectations(self, expected_seq: int | None, stored_end: ChainPosition | None) -> None:
        last = int(self._last.get("seq", 0))
        where = f"it is the last one, with the number {last}"
        if stored_end is not None and last < stored_end.seq:
            text = f"{where}: lines up to {stored_end.seq}, which the storage has as the last number, are missing"
            self._break(self.entries, text)
        elif stored_end is not None and last == stored_end.seq and self._last.get("hash") != stored_end.hash:
            self._break(self.entries, f"{where}, and the storage has another hash for it")
        elif expected_seq is not None and last < expected_seq:
            self._break(self.entries, f"{where}: lines up to {expected_seq} are missing")
        elif self._expected_hash is not None and not self._has_expected_hash:
            self._break(self.entries, f"it is the last one, and no line has the hash {self._expected_hash}")

    def _add_line(self, fields: dict[str, Any]) -> None:
        if not self._first:
            self._first = fields
            if fields["seq"] > 1:
                text = (
                    f"{self._file}: it continues an earlier file, whose last line has the number {fields['seq'] - 1}."
                )
                self._notes.append(text)
        self._last = fields
        self.entries += 1
        self._is_file_begin = False
        self._has_expected_hash = self._has_expected_hash or fields["hash"] == self._expected_hash

    def _is_recovery(self, fields: dict[str, Any]) -> bool:
        if fields.get("event") != RECOVERED or fields.get("torn_bytes") != len(self._torn):
            return False
        return fields.get("torn_sha256") == hashlib.sha256(self._torn).hexdigest()

    def _find_gap(self, fields: dict[str, Any]) -> str:
        """Return why a line cannot follow the one before. Empty: it does."""
        seq, prev = fields["seq"], fields["prev"]
        if not self._last:
            is_begin = (seq, prev) == (1, FIRST_PREV) or (seq > 1 and fields.get("event") == ROTATED)
            return "" if is_begin else f"it has the number {seq}: the lines before it are missing"
        end = position_of(self._last)
        if (seq, prev) == (end.seq + 1, end.hash):
            return ""
        if self._is_file_begin and seq == 1:
            return "it begins a new chain, and does not continue the file before"
        return _describe_gap(end, seq)

    def _break_at_torn(self) -> bool:
        is_line = parse_line(self._torn.partition(b"\n")[0]) is not None
        either = "was written with another seal key" if is_line else "is no line of an audit log"
        return self._break(self._torn_line, f"it was changed, or {either}")

    def _break(self, line: int, reason: str) -> bool:
        self._broken = Break(file=str(self._file), line=line, reason=reason)
        return False


def _describe_gap(end: ChainPosition, seq: int) -> str:
    missing = seq - end.seq - 1
    if missing > 0:
        return f"it has the number {seq}: {missing} line{'' if missing == 1 else 's'} before it {_be(missing)} missing"
    if missing < 0:
        return f"it has the number {seq}, after {end.seq}: it was moved or inserted here"
    return "its 'prev' is not the hash of the line before: that one was replaced"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as opened:
        number = 0
        while raw := opened.readline(MAX_LINE_BYTES):
            number += 1
            yield number, raw
