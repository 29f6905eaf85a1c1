"""Pictures, sounds and files on their way to a model: as themselves where a dialect can carry them, else as a note."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FileData, FunctionCallOutput, ImageLink, Part

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every model with eyes can see."""

NOTHING = "(The tool gave no output.)"
_KIB = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Bytes as base64, with what they are."""

    mime_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data}"


def picture(part: Part) -> Encoded | None:
    """The picture in a part that holds the bytes of one, whatever it came as."""
    found: Encoded | None = None
    if isinstance(part, ImageContent):
        found = Encoded(mime_type=_plain(part.mime_type), data=part.data)
    elif isinstance(part, BinaryContent) and part.data and _plain(part.mime_type or "") in PICTURES:
        found = Encoded(mime_type=_plain(part.mime_type or ""), data=b64encode(part.data).decode())
    elif isinstance(part, ImageLink):
        found = embedded(part.url)
    return found if found and found.mime_type in PICTURES else None


def picture_url(part: Part) -> str | None:
    """What a dialect that takes URLs is given for a picture: its address, or the whole of it."""
    found = picture(part)
    if found:
        return found.url
    return part.url if isinstance(part, ImageLink) and not part.url.startswith("data:") else None


def embedded(url: str) -> Encoded | None:
    """The bytes in a `data:` URL."""
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return None
    return Encoded(mime_type=_plain(head.removeprefix("data:")), data=data)


def note(part: Part) -> str:
    """A part in words: the text of a text, and for anything else what it is and that it could not be shown."""
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, ImageContent):
        return f"[An image ({_size(part.data)} of {part.mime_type}) that this model cannot be shown.]"
    if isinstance(part, AudioContent):
        return f"[A sound ({_size(part.data)} of {part.mime_type}) that this model cannot be played.]"
    if isinstance(part, BinaryContent):
        return _binary_note(part)
    where = "with its bytes inside" if part.url.startswith("data:") else f"at {part.url}"
    if isinstance(part, FileData):
        return f"[A file {_named(part.filename)}{where}, which this model cannot be shown.]"
    return f"[An image {where}, which this model cannot be shown.]"


def words(parts: Iterable[Part]) -> str:
    """Parts in words only."""
    return "\n".join(note(part) for part in parts)


def told(output: FunctionCallOutput, text: str) -> str:
    """The text of a tool result for a dialect that has no other place to say that it failed, or that it is empty."""
    text = text or NOTHING
    return f"Error: {text}" if output.is_error and not text.lower().startswith("error") else text


def _binary_note(part: BinaryContent) -> str:
    kind = part.mime_type or "unknown type"
    where = f" at {part.uri}" if part.uri else ""
    if part.is_link or not part.data:
        about = f": {part.description}" if part.description else ""
        return f"[A link to a resource {_named(part.name)}({kind}){where}{about}]"
    return f"[A resource {_named(part.name)}({len(part.data)} bytes of {kind}){where} that this model cannot be shown.]"


def _named(name: str | None) -> str:
    return f"'{name}' " if name else ""


def _plain(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def _size(data: str) -> str:
    return f"{max(1, len(data) * 3 // 4 // _KIB)} KiB"
