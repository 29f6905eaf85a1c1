"""An incremental decoder of server-sent events, with a limit on the size of an event."""

from __future__ import annotations

from holodeck.lib.limits import MIB

# Size of one event of a model API: a final event repeats a whole answer with its images.
MAX_MODEL_LINE_BYTES = 32 * MIB

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineTooLongError(ValueError):
    """An event exceeds the limit."""


class SSEDecoder:
    """Turns chunks of bytes, cut anywhere, into the data of complete events.

    Event names and ids are ignored: every dialect in use repeats the name inside the data.
    """

    def __init__(self, *, limit: int = MAX_MODEL_LINE_BYTES) -> None:
        self._limit = limit
        # Chunks of an unfinished line: joined once, not with every chunk.
        self._parts: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this chunk completes. Raises `LineTooLongError`."""
        if self._size:
            self._parts.append(chunk)
            self._size += len(chunk)
            if b"\n" not in chunk and b"\r" not in chunk and not self._parts[-2].endswith(b"\r"):
                self._check_size(self._size)
                return []
            chunk = b"".join(self._parts)
        if self._at_start and len(chunk) >= len(_BYTE_ORDER_MARK):
            self._at_start = False
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        lines = chunk.split(b"\n") if b"\r" not in chunk else self._split_lines(chunk)
        rest = lines.pop()
        self._size = len(rest)
        self._parts = [rest]
        self._check_size(self._size)
        return self._events(lines) if lines else lines

    def flush(self) -> list[bytes]:
        """Return the data of an event whose final line break or blank line is missing. It may be incomplete."""
        return self.feed(b"\n\n")

    @staticmethod
    def _split_lines(text: bytes) -> list[bytes]:
        # A CR at the very end may be half of a CRLF: it stays in the rest until the next chunk.
        trailing = b"\r" if text.endswith(b"\r") else b""
        lines = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        lines[-1] += trailing
        return lines

    def _events(self, lines: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for line in lines:
            if not line:
                if self._data:
                    found.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data = []
                    self._data_size = 0
            elif line.startswith(b"data:"):
                self._data_size += len(line)
                self._check_size(self._data_size)
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                self._data.append(b"")
        return found

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise LineTooLongError(f"an event of more than {self._limit} bytes")
