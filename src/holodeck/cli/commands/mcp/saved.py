"""Images, sounds and other bytes of a result go to files with safe names; nothing that is there is overwritten."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path

from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import MAX_SAVED_NAME_CHARS
from holodeck.models.content import AudioContent, BinaryContent, ImageContent

_EXTENSIONS = {"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "image/jpeg": ".jpg"}
_MIME_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A file that was made from a part of a result."""

    path: Path
    mime_type: str
    size: int


def save_block(block: ImageContent | AudioContent | BinaryContent, *, folder: Path, stem: str) -> SavedFile:
    """Write the bytes of a block to a new file. Raises `ExecutionError`."""
    mime_type = block.mime_type or "application/octet-stream"
    data = block.data if isinstance(block, BinaryContent) else _decode_base64(block.data, mime_type)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:MAX_SAVED_NAME_CHARS] or "result"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = _write_new_file(folder, name, _extension_for(mime_type), data)
    except OSError as error:
        raise ExecutionError(f"Cannot write to '{folder}': {error.strerror}. Choose another with --out.") from None
    return SavedFile(path=path, mime_type=mime_type, size=len(data))


def _write_new_file(folder: Path, name: str, extension: str, data: bytes) -> Path:
    number = 1
    while True:
        path = folder / f"{name}-{number}{extension}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            number += 1
        else:
            return path


def _decode_base64(data: str, mime_type: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ExecutionError(f"The {mime_type} data of the answer is not base64.") from None


def _extension_for(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    if not _MIME_TYPE.fullmatch(kind):
        return ".bin"
    return _EXTENSIONS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
