"""The decoder of event streams gives the same events for the same bytes, wherever they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.net.sse import LineTooLongError, SSEDecoder

DATA = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=3)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(DATA, max_size=5), NEWLINES, st.lists(st.integers(1, 7), max_size=200), st.booleans(), st.booleans())
def test_events_do_not_depend_on_how_the_bytes_are_cut(
    events: list[list[str]], newline: bytes, sizes: list[int], has_mark: bool, has_noise: bool
) -> None:
    noise = b": a comment" + newline + b"id: 1" + newline + b"event: x" + newline if has_noise else b""
    stream = b"\xef\xbb\xbf" if has_mark else b""
    for lines in events:
        stream += noise + b"".join(b"data: " + line.encode() + newline for line in lines) + newline
    decoder, found = SSEDecoder(), []
    for size in [*sizes, len(stream) + 1]:
        piece, stream = stream[:size], stream[size:]
        found += decoder.feed(piece) if piece else []
    found += decoder.flush()
    assert found == ["\n".join(lines).encode() for lines in events]


def test_an_event_without_its_last_line_ends_is_given_at_the_end() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: [DO") == []
    assert decoder.feed(b"NE]") == []
    assert decoder.flush() == [b"[DONE]"]


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 101, b"data: " + b"x" * 60 + b"\n"])
def test_a_line_or_an_event_without_end_is_refused(stream: bytes) -> None:
    decoder = SSEDecoder(limit=100)
    with pytest.raises(LineTooLongError):
        list(map(decoder.feed, [stream] * 3))
