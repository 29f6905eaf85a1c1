"""Content that a client stores for this gateway and can neither read nor change.

A sealed text is `hd2.` and the base64url of: key id (4 bytes), plain size (8), nonce (12), AES-256-GCM of the
deflated content. Purpose, caller, key id and plain size are associated data: content opens only for the purpose and
the caller that it was sealed for, and its plain size is known before anything is inflated.

The keys come from `seal_key` of the gateway's file, or from a key file beside the database, which the first gateway
creates; see `read_seal_keys`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.lib import log
from holodeck.lib.limits import MIN_SEAL_KEY_BYTES
from holodeck.lib.system.files import open_private_file
from holodeck.models.gateway import GatewayFile
from holodeck.models.storage_url import seal_key_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

REASONING_PURPOSE = "reasoning"
AUDIT_PURPOSE = "audit"
_SEAL_PREFIX = "hd2."
_KEY_ID_BYTES = 4
_SIZE_BYTES = 8
_HEADER_BYTES = _KEY_ID_BYTES + _SIZE_BYTES
# The header is a multiple of 3 bytes, so that its base64 has no padding and can be decoded alone.
_HEADER_CHARS = _HEADER_BYTES // 3 * 4
# The nonce size of AES-GCM.
_NONCE_BYTES = 12
# Levels of zlib.
_STORED = 0
_DEFLATED = 6
# Bytes that are deflated on the event loop: 64 KiB take 2 ms, and larger content is mostly images, which do not shrink.
_MAX_INLINE_DEFLATED = 64 * 1024
# Callers whose seals are remembered: more than are active at once.
_MAX_SEALS = 1_024
_SEAL_KEY_FIX = "Set 'seal_key' to share it and to keep it over a restart."


class BrokenSealError(ValueError):
    """The text has the prefix of sealed content, and does not open for this purpose and this caller."""

    def __init__(self) -> None:
        super().__init__("This content was not sealed for this caller by this gateway, or it was changed.")


class SealKeys:
    """The operator's keys. The first one seals, and all of them open, so that keys can be replaced."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        keys = [_SealKey(secret) for secret in secrets]
        self.first = keys[0]
        self._keys = keys
        self.by_id = {key.id: key for key in reversed(keys)}
        self.for_caller = lru_cache(_MAX_SEALS)(partial(Seal, self))
        """Return the `Seal` of a caller, by its id."""

    def derive_mac_keys(self, purpose: str) -> tuple[bytes, ...]:
        """Derive the keys of message authentication codes for a purpose: the first one signs, and all verify."""
        return tuple(key.derive_mac_key(purpose) for key in self._keys)


class Seal:
    """Seals and opens the content of one caller."""

    __slots__ = ("_caller", "_keys")

    def __init__(self, keys: SealKeys, caller_id: str) -> None:
        self._keys = keys
        self._caller = caller_id.encode("utf-8", "surrogatepass")

    def seal(self, purpose: str, content: bytes) -> str:
        """Seal content. Fast enough for the event loop: large content is not deflated."""
        return self._seal(purpose, content, _DEFLATED if len(content) <= _MAX_INLINE_DEFLATED else _STORED)

    def seal_compressed(self, purpose: str, content: bytes) -> str:
        """Seal content and deflate it whatever its size. Takes seconds for large content: not for the event loop."""
        return self._seal(purpose, content, _DEFLATED)

    def open(self, purpose: str, text: str) -> bytes:
        """Open a sealed text. Raises `BrokenSealError`. Inflates no more than the plain size in the header."""
        from cryptography.exceptions import InvalidTag

        sealed = _decode_base64(text[len(_SEAL_PREFIX) :])
        header, nonce, packed = (
            sealed[:_HEADER_BYTES],
            sealed[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES],
            sealed[_HEADER_BYTES + _NONCE_BYTES :],
        )
        key = self._keys.by_id.get(header[:_KEY_ID_BYTES])
        if key is None:
            raise BrokenSealError
        try:
            deflated = key.cipher(purpose).decrypt(nonce, packed, self._associated_data(purpose, header))
            return _inflate(deflated, int.from_bytes(header[_KEY_ID_BYTES:], "big"))
        except (InvalidTag, ValueError, zlib.error):
            raise BrokenSealError from None

    def _seal(self, purpose: str, content: bytes, level: int) -> str:
        key, nonce = self._keys.first, secrets.token_bytes(_NONCE_BYTES)
        header = key.id + len(content).to_bytes(_SIZE_BYTES, "big")
        packed = key.cipher(purpose).encrypt(
            nonce, zlib.compress(content, level), self._associated_data(purpose, header)
        )
        return _SEAL_PREFIX + base64.urlsafe_b64encode(header + nonce + packed).decode()

    def _associated_data(self, purpose: str, header: bytes) -> bytes:
        """Return the parts with length prefixes, so that no two lists of parts have the same encoding."""
        parts = (purpose.encode(), self._caller, header)
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class _SealKey:
    """One secret of the operator, from which a cipher and a key of codes for each purpose are derived."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(secret).digest()
        self.id = self._derive(b"id", b"", _KEY_ID_BYTES)
        """Names the key in sealed content. A short keyed hash, which reveals nothing of the key."""

    def cipher(self, purpose: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._derive(b"cipher", purpose.encode(), 32))

    def derive_mac_key(self, purpose: str) -> bytes:
        return self._derive(b"mac", purpose.encode(), 32)

    def _derive(self, use: bytes, content: bytes, size: int) -> bytes:
        return hashlib.blake2b(content, key=self._secret, person=use, digest_size=size).digest()


def is_sealed(text: str) -> bool:
    """Return whether a text has the prefix of sealed content. Content without it comes from another provider."""
    return text.startswith(_SEAL_PREFIX)


def plain_size(text: str) -> int | None:
    """Return the plain size in the header of a sealed text, in bytes. Not authenticated before `open`. None: none."""
    try:
        header = _decode_base64(text[len(_SEAL_PREFIX) : len(_SEAL_PREFIX) + _HEADER_CHARS])
    except BrokenSealError:
        return None
    return int.from_bytes(header[_KEY_ID_BYTES:], "big") if len(header) == _HEADER_BYTES else None


def find_seal_keys(config: GatewayFile, folder: Path) -> list[bytes]:
    """Read the keys that last over a restart; the first one seals. Empty: there are none. Raises `OSError`."""
    if config.seal_key:
        return [key.reveal().encode("utf-8", "surrogateescape") for key in config.seal_key]
    file = seal_key_file(config.storage.url, folder)
    content = file.read_bytes() if file is not None and file.exists() else b""
    return [content] if content else []


def has_lasting_key(config: GatewayFile, folder: Path) -> bool:
    """Return whether the keys that `read_seal_keys` has read or created are the same after a restart."""
    with suppress(OSError):
        return bool(find_seal_keys(config, folder))
    return False


def read_seal_keys(config: GatewayFile, folder: Path) -> list[bytes]:
    """Read or create the keys; the first one seals.

    A key file that is too short is refused earlier, when the configuration is read. A file that cannot be read or
    written does not prevent serving: then there is one random key, which lasts until the gateway stops.
    """
    if config.seal_key:
        return find_seal_keys(config, folder)
    file = seal_key_file(config.storage.url, folder)
    if file is None:
        log.warning("gateway.seal_is_temporary", fix=_SEAL_KEY_FIX)
        return [secrets.token_bytes(MIN_SEAL_KEY_BYTES)]
    try:
        if file.exists() and not file.stat().st_size:
            # An empty key is no secret. It comes from a disk that lost the content of the file.
            file.unlink(missing_ok=True)
        if not file.exists():
            _create_key_file(file)
        return [file.read_bytes()]
    except OSError as error:
        log.warning("gateway.seal_is_temporary", file=file.name, reason=error.strerror, fix=_SEAL_KEY_FIX)
        return [secrets.token_bytes(MIN_SEAL_KEY_BYTES)]


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except ValueError:
        raise BrokenSealError from None


def _inflate(deflated: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    # One byte more than the size, so that longer content is detected; and a limit of 0 would mean no limit.
    content = inflater.decompress(deflated, size + 1)
    if len(content) != size or not inflater.eof:
        raise BrokenSealError
    return content


def _create_key_file(file: Path) -> None:
    """Write a new key file atomically. When two gateways start at once, the first file stays."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(open_private_file(draft, os.O_WRONLY | os.O_EXCL), "wb") as opened:
            opened.write(secrets.token_bytes(MIN_SEAL_KEY_BYTES))
            opened.flush()
            os.fsync(opened.fileno())
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
