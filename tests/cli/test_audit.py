"""`holodeck audit verify` and `holodeck audit show`, for an operator with the files of a gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from holodeck_command import run_holodeck

from holodeck.gateway.audit.chained_file import ChainedFile

ENTRIES = [
    {"time": "2026-11-16T08:00:00.000000Z", "event": "start", "version": "1.0"},
    {"time": "2026-11-16T09:00:00.000000Z", "event": "tool_call", "caller": "key:alice", "server": "s", "tool": "add"},
    {"time": "2026-11-17T09:00:00.000000Z", "event": "tool_call", "caller": "key:bob", "server": "s", "tool": "sub"},
    {"time": "2026-11-17T09:00:01.000000Z", "event": "tool_result", "caller": "key:bob", "tool": "\x1b[31m"},
]


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    file = tmp_path / "audit.jsonl"
    log = ChainedFile(file, fsync=False)
    log.open()
    log.append(ENTRIES)
    log.close()
    return file


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines(keepends=True)


def test_a_whole_chain_is_good_and_its_ends_are_printed(log_file: Path, tmp_path: Path) -> None:
    first, *_, last = (json.loads(line)["hash"] for line in _lines(log_file))
    done = run_holodeck("audit", "verify", "audit.jsonl", cwd=tmp_path)
    assert done.returncode == 0
    for words in ("OK 4 entries", "from 2026-11-16T08:00:00", "to 2026-11-17T09:00:01", first, last, "cut off"):
        assert words in done.stdout
    data = json.loads(run_holodeck("audit", "verify", "audit.jsonl", "--json", cwd=tmp_path).stdout)
    assert (data["is_good"], data["entries"], data["last_seq"], data["last_hash"]) == (True, 4, 4, last)


def test_a_changed_line_is_named_and_the_exit_code_is_3(log_file: Path, tmp_path: Path) -> None:
    log_file.write_text(log_file.read_text().replace("key:alice", "key:carol"))
    done = run_holodeck("audit", "verify", "audit.jsonl", cwd=tmp_path)
    assert done.returncode == 3
    assert "BROKEN audit.jsonl:2: it was changed" in done.stdout
    done = run_holodeck("audit", "verify", "audit.jsonl", "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["broken"]["line"]) == (3, 2)


@pytest.mark.parametrize("option", ["--expect", "--expect-seq"])
def test_a_cut_end_shows_where_its_hash_or_number_is_known(log_file: Path, tmp_path: Path, option: str) -> None:
    lines = _lines(log_file)
    expected = json.loads(lines[-1])["hash"] if option == "--expect" else "4"
    whole = run_holodeck("audit", "verify", "audit.jsonl", option, expected, cwd=tmp_path)
    assert (whole.returncode, "cut off" in whole.stdout) == (0, False)
    log_file.write_text("".join(lines[:-1]))
    assert run_holodeck("audit", "verify", "audit.jsonl", cwd=tmp_path).returncode == 0
    cut = run_holodeck("audit", "verify", "audit.jsonl", option, expected, cwd=tmp_path)
    assert cut.returncode == 3
    assert "it is the last one" in cut.stdout


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    assert run_holodeck("audit", "verify", "none.jsonl", cwd=tmp_path).returncode == 2


def test_entries_are_shown_by_caller_tool_and_time(log_file: Path, tmp_path: Path) -> None:
    shown = run_holodeck("audit", "show", "audit.jsonl", "--caller", "key:alice", cwd=tmp_path).stdout
    assert "s.add" in shown
    assert "key:bob" not in shown
    shown = run_holodeck("audit", "show", "audit.jsonl", "--since", "2026-11-17", "--json", cwd=tmp_path).stdout
    assert [json.loads(line)["event"] for line in shown.splitlines()] == ["tool_call", "tool_result"]
    shown = run_holodeck("audit", "show", "audit.jsonl", "--tool", "s.sub", "--json", cwd=tmp_path).stdout
    assert [json.loads(line)["caller"] for line in shown.splitlines()] == ["key:bob"]
    assert "\x1b[31m" not in run_holodeck("audit", "show", "audit.jsonl", cwd=tmp_path).stdout
