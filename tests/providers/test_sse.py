"""The decoder of event streams gives the same events for the same bytes, wherever they are cut."""

from __future__ import annotations

import re
import tracemalloc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.net.sse import EventTooLargeError, SSEDecoder, SSEEvent

MARK = "\ufeff".encode()
LIMIT = 24
DATA = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=3)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])
FIELDS = st.sampled_from([b"data", b"event", b"id", b"retry", b"", b"other", b"data:", b"id:", b"retry:"])
VALUES = st.sampled_from([b"", b" ", b"x", b": y", b"1200", b"a\0b", b"\xff", b"z" * 17, b"z" * 18, b"z" * 30])
LINES = st.one_of(
    st.just(b""), st.just(MARK + b"data"), st.builds(lambda name, value: name + b": " + value, FIELDS, VALUES), FIELDS
)
CUTS = st.lists(st.integers(1, 7), max_size=200)


class Read(NamedTuple):
    events: list[SSEEvent]
    last_id: str | None
    retry: float | None


def read_in_parts(stream: bytes, sizes: list[int], decoder: SSEDecoder) -> Read:
    events: list[SSEEvent] = []
    for size in [*sizes, len(stream) + 1]:
        part, stream = stream[:size], stream[size:]
        events += decoder.feed(part) if part else []
    return Read(events, decoder.last_id, decoder.retry)


def read_by_the_standard(stream: bytes) -> Read | None:
    """The rules of the HTML standard on a whole stream, or None for one with an event over the limit."""
    *lines, _ = re.split(rb"\r\n|\n|\r", stream.removeprefix(MARK))
    events: list[SSEEvent] = []
    name, data, size = b"", list[bytes](), 0
    last_id: str | None = None
    seen_id: str | None = None
    retry: float | None = None
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        size += len(line) if field == b"data" and line != b"data" else 0
        if len(line) > LIMIT or size > LIMIT:
            return None
        if not line:
            events += [(name, b"\n".join(data))] if data else []
            name, data, size, last_id = b"", [], 0, seen_id
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"id" and b"\0" not in value:
            seen_id = value.decode("utf-8", "replace")
        elif field == b"retry" and re.fullmatch(rb"[0-9]+", value):
            retry = int(value) / 1000
    return Read(events, last_id, retry)


@given(st.lists(DATA, max_size=5), NEWLINES, CUTS, st.booleans(), st.booleans())
def test_events_do_not_depend_on_how_the_bytes_are_cut(
    events: list[list[str]], newline: bytes, sizes: list[int], has_mark: bool, has_noise: bool
) -> None:
    noise = b": a comment" + newline + b"id: 1" + newline + b"event: x" + newline if has_noise else b""
    stream = MARK if has_mark else b""
    for lines in events:
        stream += noise + b"".join(b"data: " + line.encode() + newline for line in lines) + newline
    decoder = SSEDecoder()
    found = read_in_parts(stream, sizes, decoder).events + decoder.flush()
    name = b"x" if has_noise else b""
    assert found == [(name, "\n".join(lines).encode()) for lines in events]


@given(st.lists(st.tuples(LINES, NEWLINES), max_size=20), CUTS, st.booleans())
def test_names_ids_pauses_and_limits_do_not_depend_on_how_the_bytes_are_cut(
    lines: list[tuple[bytes, bytes]], sizes: list[int], has_mark: bool
) -> None:
    stream = (MARK if has_mark else b"") + b"".join(line + newline for line, newline in lines)
    # A CR at the end may be half of a line break, and is decided by the next byte.
    stream += b":\n" if stream.endswith(b"\r") else b""
    expected = read_by_the_standard(stream)
    if expected is None:
        with pytest.raises(EventTooLargeError):
            read_in_parts(stream, sizes, SSEDecoder(limit=LIMIT))
    else:
        assert read_in_parts(stream, sizes, SSEDecoder(limit=LIMIT)) == expected


def test_a_stream_is_resumed_after_the_last_whole_event() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert decoder.last_id == "1"
    assert decoder.buffered_bytes > 0
    decoder.feed(b"\n")
    assert decoder.last_id == "2"
    assert decoder.buffered_bytes == 0


def test_an_event_without_its_last_line_ends_is_returned_at_the_end() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: [DO") == []
    assert decoder.feed(b"NE]") == []
    assert decoder.flush() == [(b"", b"[DONE]")]


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 101, b"data: " + b"x" * 60 + b"\n"])
def test_a_line_or_an_event_without_end_is_refused(stream: bytes) -> None:
    decoder = SSEDecoder(limit=100)
    with pytest.raises(EventTooLargeError):
        list(map(decoder.feed, [stream] * 3))


def test_an_event_that_ends_with_cr_is_returned_before_the_next_byte() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [(b"", b"a")]
    assert decoder.feed(b"\ndata: b\r") == []
    assert decoder.feed(b"\r") == [(b"", b"b")]
    assert decoder.flush() == []


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_a_long_line_is_copied_twice_when_it_is_complete_and_not_before(newline: bytes) -> None:
    decoder = SSEDecoder()
    part = b"x" * 50_000
    decoder.feed(b"event: message" + newline + b"data: ")
    tracemalloc.start()
    try:
        for _ in range(20):
            decoder.feed(part)
        assert tracemalloc.get_traced_memory()[1] < len(part)
        tracemalloc.reset_peak()
        ((_, data),) = decoder.feed(newline * 2)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data) + len(part)
    finally:
        tracemalloc.stop()
    assert data == part * 20
