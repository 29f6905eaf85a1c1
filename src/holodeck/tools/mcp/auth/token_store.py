"""Stores login records between runs: in the system keyring, or in files that only the user can read.

A record is one JSON object per server and client. `lock` serialises renewals among the processes of the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib
import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import orjson

from holodeck.lib import log
from holodeck.lib.json.parse import parse_json
from holodeck.lib.system.files import make_private_folder, open_private_file, replace_private_file

# Seconds to wait for another process that renews the same token. After that the token is renewed without the lock.
TOKEN_LOCK_TIMEOUT = 15.0
# Seconds between two attempts to take the lock.
TOKEN_LOCK_POLL = 0.05

LoginRecord = dict[str, Any]
LOGIN_COMMAND = "Run: holodeck mcp login {server}"
_SERVICE = "holodeck-mcp"


class TokenStore(Protocol):
    """One record for each server and client. `lock` excludes all other processes of the user."""

    @property
    def reload_seconds(self) -> float:
        """Seconds after which a record that is in use is loaded again: another process may have deleted it."""
        ...

    @property
    def login_advice(self) -> str:
        """What to do where there is no login; `{server}` is the name of the server."""
        ...

    async def load(self, key: str) -> LoginRecord | None: ...

    async def save(self, key: str, record: Mapping[str, Any]) -> None: ...

    async def delete(self, key: str) -> None: ...

    def lock(self, key: str) -> AbstractAsyncContextManager[None]: ...


class FileTokenStore:
    """A 0600 file per record in a 0700 folder. Writes replace the file atomically."""

    reload_seconds = math.inf
    login_advice = LOGIN_COMMAND

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def load(self, key: str) -> LoginRecord | None:
        return await asyncio.to_thread(self._read, key)

    async def save(self, key: str, record: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._write, key, orjson.dumps(dict(record)))

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Hold the lock, or enter without it after `TOKEN_LOCK_TIMEOUT`: renewing twice is better than hanging."""
        try:
            make_private_folder(self._folder)
            handle = open_private_file(self._path(key, "lock"), os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            # A home folder that cannot be written to has no second writer either.
            log.debug("mcp.tokens_not_locked", error=error)
            yield
            return
        try:
            await _lock_file(handle)
            yield
        finally:
            os.close(handle)

    def _path(self, key: str, kind: str = "json") -> Path:
        return self._folder / f"{_file_name_of(key)}.{kind}"

    def _read(self, key: str) -> LoginRecord | None:
        try:
            return _parse_record(self._path(key).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("mcp.tokens_not_read", error=error)
            return None

    def _write(self, key: str, content: bytes) -> None:
        make_private_folder(self._folder)
        replace_private_file(self._path(key), content)


class KeyringTokenStore:
    """The system keyring, with files as the fallback for records that it does not accept."""

    reload_seconds = math.inf
    login_advice = LOGIN_COMMAND

    def __init__(self, keyring: Any, files: FileTokenStore) -> None:
        # The `keyring` module: optional, and without type hints.
        self._keyring = keyring
        self._files = files

    async def load(self, key: str) -> LoginRecord | None:
        try:
            content = await asyncio.to_thread(self._keyring.get_password, _SERVICE, _file_name_of(key))
        # Every backend raises errors of its own.
        except Exception as error:
            log.debug("mcp.keyring_failed", error=type(error).__name__)
            content = None
        return _parse_record(content.encode()) if content else await self._files.load(key)

    async def save(self, key: str, record: Mapping[str, Any]) -> None:
        try:
            text = orjson.dumps(dict(record)).decode()
            await asyncio.to_thread(self._keyring.set_password, _SERVICE, _file_name_of(key), text)
        except Exception as error:
            log.debug("mcp.keyring_failed", error=type(error).__name__)
            await self._files.save(key, record)
        else:
            await self._files.delete(key)

    async def delete(self, key: str) -> None:
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self._keyring.delete_password, _SERVICE, _file_name_of(key))
        await self._files.delete(key)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._files.lock(key)


def open_token_store(folder: Path | None = None) -> TokenStore:
    """Open the keyring if a working backend is installed, else the folder of files."""
    files = FileTokenStore(folder or _tokens_folder())
    try:
        keyring = importlib.import_module("keyring")
        is_usable = keyring.get_keyring().priority > 0
    # Not installed, or installed without a working backend.
    except Exception:
        return files
    return KeyringTokenStore(keyring, files) if is_usable else files


def _tokens_folder() -> Path:
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    base = configured if configured.is_absolute() else Path.home() / ".config"
    return base / "holodeck" / "tokens"


def _file_name_of(key: str) -> str:
    """Return a hash, so that the name reveals no URL and any key fits."""
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def _parse_record(content: bytes) -> LoginRecord | None:
    try:
        value = parse_json(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


async def _lock_file(handle: int) -> None:
    try:
        async with asyncio.timeout(TOKEN_LOCK_TIMEOUT):
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(TOKEN_LOCK_POLL)
                else:
                    return
    except TimeoutError:
        log.warning("mcp.tokens_still_locked", seconds=TOKEN_LOCK_TIMEOUT)
