"""The keys that seal what clients keep: the operator's, or one that is made once and found again after a restart."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.limits import MIN_SEAL_KEY_BYTES
from holodeck.models.gateway import GatewayFile
from holodeck.models.storage_url import seal_key_file

_SEAL_KEY_FIX = "Set 'seal_key' to share it and to keep it over a restart."


def read_seal_keys(config: GatewayFile, folder: Path) -> list[bytes]:
    """The keys; the first one seals. A key file that is too short was refused when the configuration was read.

    A file that cannot be used is no reason not to serve: then there is one key that lasts until the gateway stops.
    """
    if config.seal_key:
        return [key.reveal().encode("utf-8", "surrogateescape") for key in config.seal_key]
    file = seal_key_file(config.storage.url, folder)
    if file is None:
        log.warning("gateway.seal_is_temporary", fix=_SEAL_KEY_FIX)
        return [secrets.token_bytes(MIN_SEAL_KEY_BYTES)]
    try:
        if file.exists() and not file.stat().st_size:
            file.unlink(missing_ok=True)  # a key that everybody knows, from a disk that lost its content
        if not file.exists():
            _create_key_file(file)
        return [file.read_bytes()]
    except OSError as error:
        log.warning("gateway.seal_is_temporary", file=file.name, reason=error.strerror, fix=_SEAL_KEY_FIX)
        return [secrets.token_bytes(MIN_SEAL_KEY_BYTES)]


def _create_key_file(file: Path) -> None:
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
