"""Stored tokens: whole or absent, private, and safe from two processes at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.tools.mcp.auth.token_store import FileTokenStore, KeyringTokenStore, open_token_store

WRITER = """
import asyncio, sys
from pathlib import Path
from holodeck.tools.mcp.auth.token_store import FileTokenStore
async def main():
    store = FileTokenStore(Path(sys.argv[1]))
    for number in range(40):
        await store.save("server", {"who": sys.argv[2] * 5000, "number": number})
        record = await store.load("server")
        assert record is not None and len(set(record["who"])) == 1, record
asyncio.run(main())
"""

COUNTER = """
import asyncio, sys
from pathlib import Path
from holodeck.tools.mcp.auth.token_store import FileTokenStore
async def main():
    store = FileTokenStore(Path(sys.argv[1]))
    for _ in range(20):
        async with store.lock("server"):
            record = await store.load("server") or {"count": 0}
            await store.save("server", {"count": record["count"] + 1})
asyncio.run(main())
"""


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def together(program: str, folder: Path) -> None:
    """Run it in three processes at once."""
    started = [subprocess.Popen([sys.executable, "-c", program, str(folder), writer]) for writer in "abc"]
    assert [process.wait(60) for process in started] == [0, 0, 0]


def test_two_writers_at_once_never_leave_half_a_record(tmp_path: Path) -> None:
    together(WRITER, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_the_lock_holds_between_processes(tmp_path: Path) -> None:
    together(COUNTER, tmp_path)
    assert asyncio.run(FileTokenStore(tmp_path).load("server")) == {"count": 60}


@async_test
async def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await store.save("server", {"a": 1})
    [path] = files(tmp_path)
    for damage in (b"{", b"[]", b"\xff\xfe", b""):
        path.write_bytes(damage)
        assert await store.load("server") is None


@async_test
async def test_the_folder_is_where_the_desktop_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    await open_token_store().save("server", {"a": 1})
    assert len(list((tmp_path / "xdg" / "holodeck" / "tokens").iterdir())) == 1
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    await open_token_store().save("server", {"a": 1})
    assert len(list((tmp_path / "home" / ".config" / "holodeck" / "tokens").iterdir())) == 1


class Keyring:
    """As the `keyring` package behaves, with and without a working backend."""

    def __init__(self, *, works: bool) -> None:
        self.works = works
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        self._check()
        return self.passwords.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self._check()
        self.passwords[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        self._check()
        del self.passwords[service, name]

    def _check(self) -> None:
        if not self.works:
            raise RuntimeError("locked")


@async_test
async def test_a_keyring_is_preferred_and_files_are_used_when_it_fails(tmp_path: Path) -> None:
    keyring = Keyring(works=True)
    store = KeyringTokenStore(keyring, FileTokenStore(tmp_path))
    await store.save("server", {"a": 1})
    assert await store.load("server") == {"a": 1}
    assert files(tmp_path) == []
    keyring.works = False
    assert await store.load("server") is None
    await store.save("server", {"a": 2})
    assert await store.load("server") == {"a": 2}
    await store.delete("server")
    assert await store.load("server") is None
