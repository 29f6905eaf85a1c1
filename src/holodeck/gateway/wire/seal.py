"""Content that only this gateway can read, in a client's hands: encrypted, and refused when it was changed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

REASONING_PURPOSE = "reasoning"
_MARK = "hd1."
_NONCE_BYTES = 12  # what AES-GCM takes


class BrokenSealError(ValueError):
    """It was sealed here, but with another key, for another purpose, or it was changed."""


class Seal:
    """One key of the operator, and from it a key for each purpose."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, purpose: str, content: bytes) -> str:
        """Text that says nothing, from which `open` makes the content again."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        packed = self._cipher(purpose).encrypt(nonce, zlib.compress(content), purpose.encode())
        return _MARK + base64.urlsafe_b64encode(nonce + packed).decode()

    def open(self, purpose: str, text: str) -> bytes | None:
        """The content; None when the text was never sealed here. Raises `BrokenSealError`."""
        from cryptography.exceptions import InvalidTag

        if not text.startswith(_MARK):
            return None
        try:
            packed = base64.urlsafe_b64decode(text[len(_MARK) :])
            content = self._cipher(purpose).decrypt(packed[:_NONCE_BYTES], packed[_NONCE_BYTES:], purpose.encode())
            return zlib.decompress(content)
        except (InvalidTag, binascii.Error, ValueError, zlib.error) as error:
            raise BrokenSealError("This content was not sealed by this gateway, or it was changed.") from error

    def _cipher(self, purpose: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(
            hashlib.blake2b(purpose.encode(), key=hashlib.sha256(self._key).digest(), digest_size=32).digest()
        )
