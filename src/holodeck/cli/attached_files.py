"""Files that a person attaches to a question: images that models take, and texts.

In a chat `@path` in the line names one: `@notes.md`, `@./picture.png`, `@"my notes.md"`. A path that cannot be read, or
has something else in it, is an error, so that the question is not sent without it.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS, MIB
from holodeck.lib.record import record
from holodeck.lib.system.files import NotRegularFileError, read_regular_file
from holodeck.models.items import ImageLink, Part, TextContent

# Bytes of one image: the most that the large providers accept.
MAX_IMAGE_BYTES = 20 * MIB
# Characters of one attached text: about 25,000 tokens, a part of the context of most models.
MAX_ATTACHED_CHARS = 100_000
# "RIFF", four bytes of size, "WEBP".
_RIFF_HEADER = 12

_MENTION = re.compile(r"""(?:^|(?<=[\s(\["']))@(?:"([^"\n]+)"|([^\s"]+))""")
# Characters after a path that belong to the sentence, unless there is a file whose name ends with them.
_PUNCTUATION = ".,;:!?)]}'"
_SURELY_PATH = ("./", "../", "~/", "/")
# A name with an extension, in any folder. `@scope/package` and `@name` are none.
_FILE_NAME = re.compile(r"[\w.+-]+(?:/[\w.+-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}")


@record
class Attachment:
    """Something attached to a message: its parts, and the line that tells the user about it."""

    parts: tuple[Part, ...]
    summary: str


def find_files(line: str) -> Iterator[str]:
    """Yield the paths that a line mentions: those that exist, and those that can be nothing but a path."""
    for found in _MENTION.finditer(line):
        quoted, written = found[1], found[2] or ""
        if quoted is not None:
            yield quoted
            continue
        bare = written.rstrip(_PUNCTUATION)
        path = next((each for each in (written, bare) if each and _is_file(each)), bare)
        if _is_file(path) or path.startswith(_SURELY_PATH) or _FILE_NAME.fullmatch(path):
            yield path


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    # Not every text can be a path.
    except (OSError, RuntimeError, ValueError):
        return False


def attach_file(written: str) -> Attachment:
    """Read a file as parts of a message. Raises `ExecutionError` for one that models do not take."""
    shown = one_line(written, MAX_SHOWN_CHARS)
    try:
        data = read_regular_file(Path(written).expanduser(), MAX_IMAGE_BYTES + 1)
    except FileNotFoundError:
        raise ExecutionError(_explain_missing(written)) from None
    except NotRegularFileError as error:
        raise ExecutionError(f"{shown} cannot be attached: {error}.") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ExecutionError(f"{shown} cannot be attached: {reason}.") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise ExecutionError(f"{shown} cannot be attached: it has more than {MAX_IMAGE_BYTES // MIB} MiB.")
    title = TextContent(text=f"\n\nFile {written}:\n")
    kind = image_type(data)
    if kind is not None:
        summary = f"Attached {shown}: {kind}, {len(data):,} bytes."
        return Attachment(parts=(title, build_image(kind, data)), summary=summary)
    text = _decode_text(data)
    if text is None:
        raise ExecutionError(
            f"{shown} cannot be attached: it is neither a text in UTF-8 nor a PNG, JPEG, GIF or WebP image."
        )
    if len(text) > MAX_ATTACHED_CHARS:
        raise ExecutionError(
            f"{shown} cannot be attached: it has {len(text):,} characters, and at most {MAX_ATTACHED_CHARS:,} can be. "
            "Attach a part of it, or give the agent a tool that reads files."
        )
    return Attachment(
        parts=(title, TextContent(text=f"{text}\n")), summary=f"Attached {shown}: {len(text):,} characters."
    )


def _explain_missing(written: str) -> str:
    path = Path(written).expanduser()
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    hint = f"Did you mean '{close[0]}'?" if close else "To send the words as they are, write a space after '@'."
    return f"There is no file '{one_line(written, MAX_SHOWN_CHARS)}' in {Path.cwd()}. {one_line(hint, MAX_SHOWN_CHARS)}"


def _decode_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def build_image(kind: str, data: bytes) -> ImageLink:
    return ImageLink(url=f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}")


def image_type(data: bytes) -> str | None:
    """Return the media type of an image in a format that models accept; None for any other data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:_RIFF_HEADER] == b"WEBP":
        return "image/webp"
    return None
