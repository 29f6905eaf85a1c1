"""The file of an audit log: lines are only ever appended, each chained to the one before.

A `ChainedFile` belongs to one thread. It holds an exclusive lock on its file, so that no other process continues the
same chain. `open` reads the last line and continues from it. What follows the last whole line, which a crash or a full
disk left, stays in the file; the next line is a `recovered` with its length and digest.

Before each write the path is looked at. If the file was renamed or deleted, a new one is begun with the line `rotated`,
whose `prev` is the last hash of the old file. The same happens if the file was emptied.

A file whose last lines were written with a key that is not known is continued after them with the line `key_changed`.

Failures are `StorageError`s. After a failed write, the next one first looks at what reached the disk.

`AuditWriter` owns one thread, and the thread owns a `ChainedFile`. Lines are written in the order in which `append` and
`post` were called; those that are queued at the same time are written with one call of the system. `append` returns
once its line is in the file, and on the disk if the file waits for it. The event loop never waits for the file, nor for
the building of a line: a line comes as a function, which the thread calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import queue
import stat
import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from holodeck.gateway.audit.entry import (
    KEY_CHANGED,
    RECOVERED,
    ROTATED,
    ChainPosition,
    Fields,
    decode_line,
    encode_line,
    format_now,
    parse_line,
    position_of,
)
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.record import record
from holodeck.lib.redaction import LOG_SECRETS
from holodeck.lib.system.files import open_private_file

# Only its owner can read it.
# Bytes at the end of a file in which its last whole line is looked for: many times the longest line.
TAIL_BYTES = 1024 * 1024

# How every line begins.
_LINE_START = b'{"seq":'
_NOTHING: Fields = {}
_REASONS = {
    errno.ENOSPC: "the disk is full. Make room",
    errno.EDQUOT: "the disk quota of this user is used up. Make room",
    errno.EFBIG: "the file may not become larger. Raise the limit on file sizes (ulimit -f), or rotate the file",
    errno.EACCES: "this user may not write it. Check its owner and that of its folder",
    errno.EPERM: "this user may not write it. Check its owner and that of its folder",
    errno.EROFS: "it is on a read-only disk. Name another file in 'audit.file'",
    errno.ENOENT: "its folder does not exist. Make it, or name another file in 'audit.file'",
    errno.EISDIR: "it is a folder. Name a file in 'audit.file'",
}
# Queued lines after which no more are collected for one write: the first of them waits for all.
GROUP_COMMIT_LINES = 256
BuildLine = Callable[[], Fields]
"""Builds the fields of a line; called once, on the thread of the writer."""


class AuditFileLockedError(StorageError):
    """Another process writes this audit log."""


class _PartlyWrittenError(Exception):
    """The system wrote only a part of the lines."""

    def __init__(self, cause: OSError, whole_lines: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.whole_lines = whole_lines


@record
class _Tail:
    """The end of a file: its last whole line, and the bytes after it."""

    end: ChainPosition | None
    """None: the file has no line."""
    torn: bytes = b""
    """What follows the last whole line, with a newline at its end. A line that lacks only its newline is whole."""
    lacks_newline: bool = False
    has_unknown_key: bool = False
    """No line in it is genuine by the known keys; `end` is that of the last text that has the form of a line."""


class ChainedFile:
    """An append-only file of chained lines. `open` comes first; `append` may be repeated after it has raised."""

    def __init__(self, path: Path, *, keys: Sequence[bytes], fsync: bool) -> None:
        """`keys`: the first one is for new lines. `fsync`: wait for the disk at each `append`."""
        self._path = path
        self._keys = keys
        self._fsync = fsync
        self._handle: int | None = None
        self._end: ChainPosition | None = None
        """The last line that was written. None before `open`."""
        self._size = 0
        """Bytes of the file after the last write."""
        self._must_inspect = False
        """True after a failed write: it is not known how much of it is in the file."""
        self._lost = 0
        """Lines that could not be written, and are not mentioned in the file yet."""

    @property
    def end(self) -> ChainPosition | None:
        """The last line that was written. None before the first one. May be read on any thread."""
        return self._end

    def open(self) -> ChainPosition:
        """Open and lock the file, and return the end of its chain.

        Raises `AuditFileLockedError` while another process has it, and `StorageError` where it cannot be used.
        """
        try:
            self._replace_handle(self._open_locked())
            assert self._handle is not None  # noqa: S101 - just opened
            self._must_inspect = True
            end = self._read_tail(self._handle).end if self._size else ChainPosition()
        except OSError as error:
            raise self._storage_error(error) from None
        if end is None:
            self.close()
            raise StorageError(self._text("it is not an audit log. Name another file in 'audit.file'"))
        return end

    def append(self, lines: Sequence[Fields]) -> tuple[int, StorageError | None]:
        """Append lines. Returns how many of them are in the file, and the error if that is not all of them.

        Lines that were not written are counted, and the next `recovered` says how many they were.
        """
        written, failure = 0, None
        first: list[Fields] = []
        try:
            first = self._prepare()
            self._write_lines([*first, *lines])
            written = len(first) + len(lines)
        except _PartlyWrittenError as error:
            written, failure = error.whole_lines, self._storage_error(error.cause)
        except OSError as error:
            failure = self._storage_error(error)
        except StorageError as error:
            failure = error
        if failure is not None:
            self._must_inspect = True
        if first and written >= len(first):
            self._lost = 0
        written = max(written - len(first), 0)
        self._lost += len(lines) - written
        return written, failure

    def close(self) -> None:
        """Close the file and release its lock. May be called twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _prepare(self) -> list[Fields]:
        """Make the file ready for the next line. Returns the lines that must come before it."""
        if self._handle is None or self._is_renamed(self._handle):
            self._replace_handle(self._open_locked())
            self._must_inspect = True
        assert self._handle is not None  # noqa: S101 - just opened
        size = os.fstat(self._handle).st_size
        if size == 0:
            self._size, self._must_inspect = 0, False
            is_first = self._end is None or self._end.seq == 0
            self._end = self._end or ChainPosition()
            return [] if is_first and not self._lost else [self._note(RECOVERED if is_first else ROTATED)]
        if size != self._size and not self._must_inspect:
            log.error("audit.file_changed", file=self._path, expected_bytes=self._size, bytes=size)
            self._must_inspect = True
        self._size = size
        if self._must_inspect:
            return self._inspect(self._handle)
        return [self._note(RECOVERED)] if self._lost else []

    def _inspect(self, handle: int) -> list[Fields]:
        """Continue after what is in the file. Returns the line that must come first, if something is torn or lost."""
        tail = self._read_tail(handle)
        if self._end is None and tail.end is None:
            raise StorageError(self._text("it is not an audit log. Name another file in 'audit.file'"))
        # The lines of this process are known better from memory: their end may have been removed from the file.
        self._end = self._end or tail.end
        if tail.lacks_newline:
            self._size += os.write(handle, b"\n")
        self._must_inspect = False
        if tail.has_unknown_key:
            log.error("audit.key_unknown", file=self._path)
            return [self._note(KEY_CHANGED)]
        if not tail.torn and not self._lost:
            return []
        torn = {"torn_bytes": len(tail.torn), "torn_sha256": hashlib.sha256(tail.torn).hexdigest()}
        return [self._note(RECOVERED, torn if tail.torn else {})]

    def _note(self, event: str, more: Fields = _NOTHING) -> Fields:
        lost: Fields = {"lost": self._lost} if self._lost else {}
        return {"time": format_now(), "event": event, **more, **lost}

    def _write_lines(self, lines: Sequence[Fields]) -> None:
        """Write lines, and wait for the disk if that is wanted. Raises `OSError` or `_PartlyWrittenError`."""
        assert self._handle is not None  # noqa: S101 - `_prepare` opened it
        assert self._end is not None  # noqa: S101 - and found the end of the chain
        end, encoded, ends = self._end, [], []
        for fields in lines:
            line, end = encode_line(fields, end, self._keys[0])
            encoded.append(line)
            ends.append(end)
        data, count = b"".join(encoded), 0
        try:
            while count < len(data):
                count += os.write(self._handle, data[count:])
        except OSError as error:
            if count == 0:
                raise
            lengths = accumulate(len(line) for line in encoded)
            whole = sum(1 for length in lengths if length <= count)
            raise _PartlyWrittenError(error, whole) from None
        else:
            whole = len(lines)
        finally:
            self._size += count
            if count:
                self._end = ends[whole - 1] if whole else self._end
        if self._fsync:
            os.fsync(self._handle)

    def _open_locked(self) -> int:
        handle = open_private_file(self._path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StorageError(self._text("it is not a regular file. Name another one in 'audit.file'"))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise AuditFileLockedError(
                f"Another process writes the audit log {self._path}. Each gateway has a file of its own: stop the "
                "other one, or name another file in 'audit.file', such as audit-${HOSTNAME}.jsonl."
            ) from None
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _replace_handle(self, handle: int) -> None:
        self.close()
        self._handle = handle
        self._size = os.fstat(handle).st_size

    def _is_renamed(self, handle: int) -> bool:
        try:
            here = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        opened = os.fstat(handle)
        return (here.st_dev, here.st_ino) != (opened.st_dev, opened.st_ino)

    def _read_tail(self, handle: int) -> _Tail:
        start = max(self._size - TAIL_BYTES, 0)
        data = os.pread(handle, self._size - start, start)
        whole_end = len(data)
        lacks_newline = not data.endswith(b"\n")
        unknown: dict[str, Any] | None = None
        for line in reversed(data.split(b"\n")):
            fields = decode_line(line, self._keys) if line else None
            if fields is not None:
                torn = data[whole_end + 1 :]
                torn += b"\n" if torn and lacks_newline else b""
                return _Tail(end=position_of(fields), torn=torn, lacks_newline=lacks_newline)
            unknown = unknown or parse_line(line)
            whole_end -= len(line) + 1
        if unknown is not None and self._end is None:
            return _Tail(end=position_of(unknown), lacks_newline=lacks_newline, has_unknown_key=True)
        torn = data + (b"\n" if lacks_newline else b"")
        if start == 0 and torn.startswith(_LINE_START[: len(data)]):
            # Nothing but a torn first line: the chain has not begun in this file.
            return _Tail(end=ChainPosition(), torn=torn, lacks_newline=lacks_newline)
        if self._end is not None:
            return _Tail(end=None, torn=torn, lacks_newline=lacks_newline)
        return _Tail(end=None)

    def _text(self, reason: str) -> str:
        # A variable may be part of the path.
        return LOG_SECRETS.mask(f"The audit log {self._path} cannot be written: {reason}.")

    def _storage_error(self, error: OSError) -> StorageError:
        reason = _REASONS.get(error.errno or 0) or (error.strerror or "the system reports an error").lower()
        return StorageError(self._text(reason))


@record
class _Job:
    lines: Sequence[BuildLine]
    """Empty: only what earlier writes could not say is written."""
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[None] | None = None
    """None: nothing waits for the line."""


class AuditWriter:
    """Writes lines in order on one thread, which starts with `open` and ends with `close`."""

    def __init__(self, file: ChainedFile) -> None:
        self._file = file
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.failure: StorageError | None = None
        """Why the latest write failed. None: it did not."""

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Start the thread. The file must be open, unless it is opened by a later write."""
        self._thread = threading.Thread(target=self._run_thread, name="audit", daemon=True)
        self._thread.start()

    async def append(self, line: BuildLine) -> None:
        """Write a line. Raises `StorageError` if it is not in the file. A caller that is cancelled does not stop it."""
        await self._submit((line,))

    def post(self, line: BuildLine) -> None:
        """Write a line without waiting for it."""
        self._jobs.put(_Job(lines=(line,)))

    async def recover(self) -> None:
        """Try to write again after a failure. Raises `StorageError`."""
        await self._submit(())

    async def close(self) -> None:
        """Write what is queued, and wait until the thread has closed the file."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    async def _submit(self, lines: Sequence[BuildLine]) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._jobs.put(_Job(lines=lines, loop=loop, future=future))
        await future

    def _run_thread(self) -> None:
        job: _Job | None = None
        is_closing = False
        while not is_closing:
            batch: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                batch.append(job)
                if len(batch) >= GROUP_COMMIT_LINES:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            is_closing = job is None
            if batch:
                self._write_batch(batch)
        self._file.close()

    def _write_batch(self, batch: Sequence[_Job]) -> None:
        failure: Exception | None
        try:
            written, failure = self._file.append([build() for job in batch for build in job.lines])
        except Exception as bug:
            # Without this thread, every later caller would wait for ever.
            written, failure = 0, bug
        self.failure = failure if failure is None or isinstance(failure, StorageError) else StorageError(repr(failure))
        for job in batch:
            is_written = failure is None or (bool(job.lines) and written > 0)
            written -= len(job.lines)
            if job.loop is not None and job.future is not None:
                # A closed loop raises RuntimeError, and has no caller that waits.
                with contextlib.suppress(RuntimeError):
                    job.loop.call_soon_threadsafe(_resolve_future, job.future, None if is_written else self.failure)


def _resolve_future(future: asyncio.Future[None], failure: Exception | None) -> None:
    # The caller may have been cancelled.
    if future.done():
        return
    if failure is None:
        future.set_result(None)
        return
    future.set_exception(failure)
    # Marks the exception as retrieved: a caller that is cancelled now does not retrieve it.
    future.exception()
