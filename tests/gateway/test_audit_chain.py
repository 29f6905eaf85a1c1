"""The chain of an audit log shows every change of its file; what was cut off at the end shows with a noted hash."""

from __future__ import annotations

import hmac
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.gateway.audit.chained_file import ChainedFile
from holodeck.gateway.audit.entry import FIRST_PREV, ChainPosition, encode_line
from holodeck.gateway.audit.verify import verify_files

COUNT = 12
KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def _write_log(file: Path, count: int = COUNT) -> list[bytes]:
    """An audit log of this many entries; returns its lines."""
    log = ChainedFile(file, keys=[KEY], fsync=False)
    log.open()
    written, failure = log.append(
        [{"time": "t", "event": "tool_call", "tool": f"tool {n} ü \\ud800"} for n in range(count)]
    )
    log.close()
    assert (written, failure) == (count, None)
    return file.read_bytes().splitlines(keepends=True)


@contextmanager
def _log() -> Iterator[tuple[Path, list[bytes]]]:
    # Not `tmp_path`: all examples of a property would share it.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "audit.jsonl"
        yield file, _write_log(file)


def _hash_of(line: bytes) -> str:
    return str(json.loads(line)["hash"])


def _assert_tampering_shows(file: Path, lines: list[bytes], changed: bytes) -> None:
    """Only a beginning of the lines passes, and not even that where the last hash is known."""
    file.write_bytes(changed)
    # A line that lacks only its end is still the same entry.
    if changed.removesuffix(b"\n") == b"".join(lines).removesuffix(b"\n"):
        assert verify_files([file], keys=[KEY], expected_hash=_hash_of(lines[-1])).is_good
        return
    assert not verify_files([file], keys=[KEY], expected_hash=_hash_of(lines[-1]), expected_seq=COUNT).is_good
    found = verify_files([file], keys=[KEY])
    assert found.last_hash == (_hash_of(lines[found.entries - 1]) if found.entries else "")
    if found.is_good:
        assert changed.startswith(b"".join(lines[: found.entries]).removesuffix(b"\n"))
        assert b"\n" not in changed[len(b"".join(lines[: found.entries])) :]


@given(st.data())
def test_a_changed_byte_shows(data: st.DataObject) -> None:
    with _log() as (file, lines):
        whole = bytearray(b"".join(lines))
        position = data.draw(st.integers(0, len(whole) - 1))
        whole[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[position]))
        _assert_tampering_shows(file, lines, bytes(whole))


@given(st.integers(0, COUNT - 1), st.integers(1, COUNT))
def test_removed_lines_show(start: int, count: int) -> None:
    with _log() as (file, lines):
        _assert_tampering_shows(file, lines, b"".join([*lines[:start], *lines[start + count :]]))


@given(st.permutations(range(COUNT)))
def test_reordered_lines_show(order: list[int]) -> None:
    with _log() as (file, lines):
        _assert_tampering_shows(file, lines, b"".join(lines[index] for index in order))


@given(st.integers(0, COUNT), st.integers(0, COUNT - 1))
def test_a_copied_line_shows(position: int, source: int) -> None:
    with _log() as (file, lines):
        _assert_tampering_shows(file, lines, b"".join([*lines[:position], lines[source], *lines[position:]]))


@given(st.integers(0, COUNT - 1))
def test_a_forged_line_with_a_right_hash_of_its_own_shows(position: int) -> None:
    with _log() as (file, lines):
        prev = _hash_of(lines[position - 1]) if position else FIRST_PREV
        forged, _ = encode_line({"time": "t", "event": "tool_call"}, ChainPosition(seq=position, hash=prev), KEY)
        file.write_bytes(b"".join([*lines[:position], forged, *lines[position:]]))
        assert not verify_files([file], keys=[KEY]).is_good
        file.write_bytes(b"".join([*lines[:position], forged, *lines[position + 1 :]]))
        assert not verify_files([file], keys=[KEY], expected_hash=_hash_of(lines[-1])).is_good


@given(st.data())
def test_bytes_that_are_cut_out_show(data: st.DataObject) -> None:
    with _log() as (file, lines):
        whole = b"".join(lines)
        start = data.draw(st.integers(0, len(whole) - 1))
        end = data.draw(st.integers(start + 1, len(whole)))
        _assert_tampering_shows(file, lines, whole[:start] + whole[end:])


@given(st.integers(0, 4000))
def test_a_file_that_a_crash_cut_anywhere_is_continued(length: int) -> None:
    with _log() as (file, lines):
        file.write_bytes(b"".join(lines)[:length])
        log = ChainedFile(file, keys=[KEY], fsync=False)
        log.open()
        assert log.append([{"time": "t", "event": "start"}]) == (1, None)
        log.close()
        found = verify_files([file], keys=[KEY])
        assert found.is_good, found
        assert found.last_seq == found.entries


def test_a_line_can_be_checked_with_nothing_but_the_key(tmp_path: Path) -> None:
    lines = _write_log(tmp_path / "audit.jsonl")
    prev = FIRST_PREV
    for line in lines:
        fields = json.loads(line)
        assert fields.pop("prev") == prev
        prev = fields.pop("hash")
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hmac.new(KEY, (json.loads(line)["prev"] + canonical).encode(), "sha256").hexdigest() == prev


@pytest.mark.parametrize("key", [b"", OTHER_KEY])
def test_a_whole_new_chain_without_the_key_shows(tmp_path: Path, key: bytes) -> None:
    file, end, lines = tmp_path / "audit.jsonl", ChainPosition(), []
    for line in _write_log(file):
        kept = {name: value for name, value in json.loads(line).items() if name not in ("seq", "prev", "hash")}
        new, end = encode_line({**kept, "tool": "harmless"}, end, key)
        lines.append(new)
    file.write_bytes(b"".join(lines))
    broken = verify_files([file], keys=[KEY]).broken
    assert broken is not None
    assert (broken.line, broken.reason) == (1, "it was changed, or was written with another seal key")
    assert verify_files([file], keys=[KEY, key]).is_good, "any of several keys will do"


@pytest.mark.parametrize("text", [b"", b"\n", b"hello\n", b'{"seq":1}\n'])
def test_another_file_is_not_taken_for_an_audit_log(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "other.txt"
    file.write_bytes(text)
    assert verify_files([file], keys=[KEY]).is_good == (text == b"")


def _append(log: ChainedFile, event: str) -> None:
    assert log.append([{"time": "t", "event": event}]) == (1, None)


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[ChainedFile]:
    log = ChainedFile(tmp_path / "audit.jsonl", keys=[KEY], fsync=False)
    log.open()
    _append(log, "start")
    _append(log, "tool_call")
    yield log
    log.close()


def test_lines_that_are_removed_while_the_gateway_writes_are_missing_in_the_chain(
    open_log: ChainedFile, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    with file.open("r+b") as opened:
        opened.truncate(len(file.read_bytes().splitlines(keepends=True)[0]))
    _append(open_log, "tool_result")
    broken = verify_files([file], keys=[KEY]).broken
    assert broken is not None
    assert (broken.line, "1 line before it is missing" in broken.reason) == (2, True)


def test_text_that_another_program_appends_is_no_entry_and_is_mentioned(open_log: ChainedFile, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with file.open("ab") as opened:
        opened.write(b"hello")
    _append(open_log, "tool_result")
    found = verify_files([file], keys=[KEY])
    assert (found.is_good, found.entries) == (True, 4)
    assert "6 bytes of torn text" in found.notes[0]


def test_an_emptied_file_goes_on_as_a_rotated_one(open_log: ChainedFile, tmp_path: Path) -> None:
    file, copy = tmp_path / "audit.jsonl", tmp_path / "copy.jsonl"
    copy.write_bytes(file.read_bytes())
    file.write_bytes(b"")
    _append(open_log, "tool_result")
    found = verify_files([copy, file], keys=[KEY])
    assert (found.is_good, found.entries) == (True, 4)


def test_a_line_that_is_nested_too_deeply_is_no_entry(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b"[" * 100_000 + b"\n")
    assert not verify_files([file], keys=[KEY]).is_good
