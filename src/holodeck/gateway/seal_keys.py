"""The keys that seal what clients keep: the operator's, or one that is made once and found again after a restart."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.errors import ConfigError
from holodeck.lib.limits import MIN_SEAL_KEY_BYTES
from holodeck.models.gateway import GatewayFile
from holodeck.models.storage_url import is_in_memory, is_sqlite, sqlite_path

_FIX = "Set 'seal_key' to share it and to keep it over a restart."


def read_seal_keys(config: GatewayFile, folder: Path) -> list[bytes]:
    """The keys; the first one seals. Raises `ConfigError` for a key file that is too short.

    A file that cannot be used is no reason not to serve: then there is one key that lasts until the gateway stops.
    """
    if config.seal_key:
        return [key.reveal().encode("utf-8", "surrogateescape") for key in config.seal_key]
    file = _key_file(config, folder)
    if file is None:
        log.warning("gateway.seal_is_temporary", fix=_FIX)
        return [secrets.token_bytes(MIN_SEAL_KEY_BYTES)]
    try:
        if file.exists() and not file.stat().st_size:
            file.unlink(missing_ok=True)  # a key that everybody knows, from a disk that lost its content
        if not file.exists():
            _make(file)
        return [_read(file)]
    except OSError as error:
        log.warning("gateway.seal_is_temporary", file=file.name, reason=error.strerror, fix=_FIX)
        return [secrets.token_bytes(MIN_SEAL_KEY_BYTES)]


def check_key_file(config: GatewayFile, folder: Path) -> None:
    """Raise `ConfigError` for a key file beside the database that is too short. One that is empty is made anew."""
    file = None if config.seal_key else _key_file(config, folder)
    with suppress(OSError):
        if file is not None and file.exists() and file.stat().st_size:
            _read(file)


def _key_file(config: GatewayFile, folder: Path) -> Path | None:
    """The file beside the database; None: the database is no file."""
    url = config.storage.url
    if not is_sqlite(url) or is_in_memory(url):
        return None
    path = sqlite_path(url, folder)
    return path.with_name(f"{path.name}.key")


def _read(file: Path) -> bytes:
    key = file.read_bytes()
    if len(key) < MIN_SEAL_KEY_BYTES:
        raise ConfigError(
            f"The key file '{file}' has {len(key)} bytes; a key that seals has at least {MIN_SEAL_KEY_BYTES}. Put it "
            "back from a copy, or remove it: then a new one is made, and what the old one sealed cannot be opened."
        )
    return key


def _make(file: Path) -> None:
    """Write a new key: it is there whole or not at all, also when two gateways start at once."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secrets.token_bytes(MIN_SEAL_KEY_BYTES))
            opened.flush()
            os.fsync(opened.fileno())
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
