"""The key that seals what clients keep: the operator's, or one that is made once and found again after a restart."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from holodeck.lib import log
from holodeck.models.gateway import GatewayFile
from holodeck.storage.factory import is_in_memory, sqlite_path

_KEY_BYTES = 32
_SQLITE = "sqlite://"
_FIX = "Set 'seal_key' to share it and to keep it over a restart."


def seal_key(config: GatewayFile, folder: Path) -> bytes:
    """The key. A file that cannot be used is no reason not to serve: then the key lasts until the gateway stops."""
    if config.seal_key is not None:
        return config.seal_key.reveal().encode()
    url = config.storage.url
    if not url.startswith(_SQLITE) or is_in_memory(url):
        log.warning("gateway.seal_is_temporary", fix=_FIX)
        return secrets.token_bytes(_KEY_BYTES)
    path = sqlite_path(url, folder)
    return _kept(path.with_name(f"{path.name}.key"))


def _kept(file: Path) -> bytes:
    """What the file says; it is there whole or not at all, also when two gateways start at once."""
    try:
        if file.exists() and not file.stat().st_size:
            file.unlink(missing_ok=True)  # a key that everybody knows, from a disk that lost its content
        if not file.exists():
            _make(file)
        return file.read_bytes()
    except OSError as error:
        log.warning("gateway.seal_is_temporary", file=file.name, reason=error.strerror, fix=_FIX)
        return secrets.token_bytes(_KEY_BYTES)


def _make(file: Path) -> None:
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secrets.token_bytes(_KEY_BYTES))
            opened.flush()
            os.fsync(opened.fileno())
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
