"""`holodeck audit verify` and `holodeck audit show`, for an operator with the files of a gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gateway.audit_entries import SEAL_KEY
from holodeck_command import run_holodeck

from holodeck.gateway.audit.chained_file import ChainedFile
from holodeck.gateway.sealing import AUDIT_PURPOSE, SealKeys
from holodeck.storage.factory import open_store

ENTRIES = [
    {"time": "2026-11-16T08:00:00.000000Z", "event": "start", "version": "1.0"},
    {"time": "2026-11-16T09:00:00.000000Z", "event": "tool_call", "caller": "key:alice", "server": "s", "tool": "add"},
    {"time": "2026-11-16T09:30:00.000000Z", "event": "tool_call", "caller": "key:alice#abcdefgh", "tool": "s.div"},
    {"time": "2026-11-17T09:00:00.000000Z", "event": "tool_call", "caller": "key:bob", "server": "s", "tool": "sub"},
    {"time": "2026-11-17T09:00:01.000000Z", "event": "tool_result", "caller": "key:bob", "tool": "\x1b[31m"},
]


GATEWAY = {
    "models": [{"name": "demo", "model": {"provider": "rehearsal", "name": "rehearsal"}}],
    "audit": {"file": "audit.jsonl"},
}


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """An audit log beside its gateway file and the key that the gateway has made."""
    (tmp_path / "gateway.yaml").write_text(json.dumps(GATEWAY))
    (tmp_path / "holodeck.db.key").write_text(SEAL_KEY)
    file = tmp_path / "audit.jsonl"
    keys = SealKeys([SEAL_KEY.encode()]).derive_mac_keys(AUDIT_PURPOSE)
    log = ChainedFile(file, keys=keys, fsync=False)
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
    for words in ("OK 5 entries", "from 2026-11-16T08:00:00", "to 2026-11-17T09:00:01", first, last, "cut off"):
        assert words in done.stdout
    data = json.loads(run_holodeck("audit", "verify", "audit.jsonl", "--json", cwd=tmp_path).stdout)
    assert (data["is_good"], data["entries"], data["last_seq"], data["last_hash"]) == (True, 5, 5, last)


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
    expected = json.loads(lines[-1])["hash"] if option == "--expect" else "5"
    whole = run_holodeck("audit", "verify", "audit.jsonl", option, expected, cwd=tmp_path)
    assert (whole.returncode, "cut off" in whole.stdout) == (0, False)
    log_file.write_text("".join(lines[:-1]))
    assert run_holodeck("audit", "verify", "audit.jsonl", cwd=tmp_path).returncode == 0
    cut = run_holodeck("audit", "verify", "audit.jsonl", option, expected, cwd=tmp_path)
    assert cut.returncode == 3
    assert "it is the last one" in cut.stdout


def test_a_cut_end_shows_by_the_last_number_in_the_storage(log_file: Path, tmp_path: Path) -> None:
    lines = _lines(log_file)
    asyncio.run(_store_end(tmp_path, str(log_file.resolve()), json.loads(lines[-1])))
    whole = run_holodeck("audit", "verify", "audit.jsonl", cwd=tmp_path)
    assert (whole.returncode, "cut off" in whole.stdout) == (0, False)
    log_file.write_text("".join(lines[:-1]))
    cut = run_holodeck("audit", "verify", str(log_file), "-f", str(tmp_path / "gateway.yaml"), cwd=tmp_path.parent)
    assert cut.returncode == 3
    assert "lines up to 5, which the storage has as the last number, are missing" in cut.stdout


async def _store_end(folder: Path, file: str, last: dict[str, Any]) -> None:
    store = open_store("sqlite:///holodeck.db", folder=folder)
    await store.store_audit_end(file, last["seq"], last["hash"])
    await store.close()


def test_without_the_seal_key_it_is_said_what_to_do(log_file: Path, tmp_path: Path) -> None:
    (tmp_path / "holodeck.db.key").unlink()
    done = run_holodeck("audit", "verify", "audit.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "there is none that lasts" in done.stderr
    assert "with -f, or set 'seal_key'" in done.stderr
    assert not list(tmp_path.glob("*.db*")), "nothing is made"


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    assert run_holodeck("audit", "verify", "none.jsonl", cwd=tmp_path).returncode == 2


def test_entries_are_shown_by_caller_tool_and_time(log_file: Path, tmp_path: Path) -> None:
    shown = run_holodeck("audit", "show", "audit.jsonl", "--caller", "key:alice", cwd=tmp_path).stdout
    assert "s.add" in shown
    assert "s.div" in shown, "also of the caller of this name that has an id"
    assert "key:bob" not in shown
    shown = run_holodeck("audit", "show", "audit.jsonl", "--since", "2026-11-17", "--json", cwd=tmp_path).stdout
    assert [json.loads(line)["event"] for line in shown.splitlines()] == ["tool_call", "tool_result"]
    shown = run_holodeck("audit", "show", "audit.jsonl", "--tool", "s.sub", "--json", cwd=tmp_path).stdout
    assert [json.loads(line)["caller"] for line in shown.splitlines()] == ["key:bob"]
    assert "\x1b[31m" not in run_holodeck("audit", "show", "audit.jsonl", cwd=tmp_path).stdout
