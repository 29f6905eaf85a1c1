"""Pictures for a question: what a file is by its content, never by its name."""

from __future__ import annotations

import base64
from pathlib import Path

import click

from holodeck.lib.limits import MAX_IMAGE_BYTES, MIB
from holodeck.lib.system.regular_files import read_regular_file
from holodeck.models.items import ImageLink

_RIFF_HEADER = 12  # "RIFF", four bytes of size, "WEBP"


def image_part(path: Path) -> ImageLink:
    """The file as a part of a question. Raises a usage error that names what is wrong with it."""
    try:
        data = read_regular_file(path, MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--image") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise click.BadParameter(
            f"{path} has more than {MAX_IMAGE_BYTES // MIB} MiB, which models do not take", param_hint="--image"
        )
    kind = image_type(data)
    if kind is None:
        raise click.BadParameter(f"{path} is not a PNG, JPEG, GIF or WebP image", param_hint="--image")
    return ImageLink(url=f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}")


def image_type(data: bytes) -> str | None:
    """The media type of an image that models understand."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:_RIFF_HEADER] == b"WEBP":
        return "image/webp"
    return None
