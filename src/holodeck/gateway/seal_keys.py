"""The key that seals what clients keep: the operator's, or one that is made once and found again after a restart."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.errors import ConfigError
from holodeck.models.gateway import GatewayFile

_KEY_BYTES = 32
_SQLITE = "sqlite:///"


def seal_key(config: GatewayFile, folder: Path) -> bytes:
    """The key. Raises when the file that should keep it cannot be read or written."""
    if config.seal_key is not None:
        return config.seal_key.reveal().encode()
    path = config.storage.url.removeprefix(_SQLITE)
    if not config.storage.url.startswith(_SQLITE) or path in ("", ":memory:"):
        log.warning("gateway.seal_is_temporary", fix="Set 'seal_key' to share it and to keep it over a restart.")
        return secrets.token_bytes(_KEY_BYTES)
    return _kept(folder / f"{path}.key")


def _kept(file: Path) -> bytes:
    """What the file says; it is there whole or not at all, also when two gateways start at once."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(secrets.token_bytes(_KEY_BYTES))
            with suppress(FileExistsError):
                os.link(draft, file)
            draft.unlink()
        return file.read_bytes()
    except OSError as error:
        reason = f"The key file {file.name} cannot be used: {error.strerror}."
        raise ConfigError(f"{reason} Make its folder writable, or set 'seal_key'.") from None
