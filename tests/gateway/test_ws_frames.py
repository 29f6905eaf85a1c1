"""Frames of a WebSocket do not depend on how its bytes are split, and every byte is released."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from holodeck.gateway.server.ws_protocol import FrameSplitter
from holodeck.lib.byte_budget import ByteBudget

SIZES = st.sampled_from([0, 1, 125, 126, 127, 300, 70_000])
EMPTY = bytes((0, 0x80, 0, 0, 0, 0))


def _frames(sizes: list[int]) -> list[bytes]:
    """One message in as many frames, with a ping between any two of them."""
    made: list[bytes] = []
    for index, size in enumerate(sizes):
        opcode = Opcode.CONT if index else Opcode.TEXT
        is_last = index == len(sizes) - 1
        made.append(bytes(Frame(opcode, b"x" * size, fin=is_last).serialize(mask=True)))
        made += [] if is_last else [bytes(Frame(Opcode.PING, b"p").serialize(mask=True))]
    return made


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    positions = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[one:other] for one, other in pairwise(positions)]


@settings(deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=4), st.lists(st.integers(0, 300_000), max_size=8))
def test_frames_do_not_depend_on_how_the_bytes_are_split(sizes: list[int], cuts: list[int]) -> None:
    budget = ByteBudget(sum(sizes))
    frames, sent = FrameSplitter(budget, max_frame_bytes=100_000), _frames(sizes)
    assert [frame for chunk in _cut(b"".join(sent), cuts) for frame in frames.feed(chunk)] == sent
    assert budget.available == 0
    assert frames.pop_message_bytes() == sum(sizes)
    assert not frames.pop_refusal()
    assert not frames.is_mid_message


@settings(deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=4), st.lists(st.integers(0, 300_000), max_size=8))
def test_a_message_over_the_byte_budget_is_cut_and_the_next_message_is_read(sizes: list[int], cuts: list[int]) -> None:
    sizes = [*sizes, 200]
    budget = ByteBudget(sum(sizes) - 1)
    frames, sent = FrameSplitter(budget, max_frame_bytes=100_000), _frames(sizes)
    came = [frame for chunk in _cut(b"".join(sent), cuts) for frame in frames.feed(chunk)]
    pings = [frame for frame in sent if frame[0] & 0x0F == Opcode.PING]
    parts = [frame for frame in came if frame not in pings]
    assert [frame for frame in came if frame in pings] == pings
    assert parts[:-1] == [frame for frame in sent if frame not in pings][: len(parts) - 1]
    assert (parts[-1][0] & 0x80, parts[-1][1:]) == (0x80, EMPTY[1:])
    assert frames.pop_refusal()
    assert (frames.pop_message_bytes(), frames.is_mid_message, budget.available) == (0, False, sum(sizes) - 1)
    (after,) = _frames([5])
    assert list(frames.feed(after)) == [after]


def test_of_a_frame_over_the_size_limit_only_the_header_is_passed_on() -> None:
    budget = ByteBudget(1_000)
    frames = FrameSplitter(budget, max_frame_bytes=100)
    (long,) = _frames([101])
    (head,) = frames.feed(long)
    assert long.startswith(head)
    assert list(frames.feed(long)) == [], "nothing comes after it"
    assert budget.available == 1_000


@pytest.mark.parametrize("budget_bytes", [0, 5, 1_000], ids=["no room", "room for half", "room"])
def test_a_message_is_incomplete_until_its_last_byte_has_arrived(budget_bytes: int) -> None:
    sent = b"".join(_frames([3, 4]))
    for cut in range(1, len(sent)):
        frames = FrameSplitter(ByteBudget(budget_bytes), max_frame_bytes=100)
        list(frames.feed(sent[:cut]))
        assert frames.is_mid_message
        list(frames.feed(sent[cut:]))
        frames.pop_message_bytes()
        assert not frames.is_mid_message


def test_data_frames_count_as_progress_of_a_message_and_pings_do_not() -> None:
    frames = FrameSplitter(ByteBudget(1_000), max_frame_bytes=100)
    first, ping, last = _frames([3, 0])
    moved = [frames.received_bytes]
    for chunk in (first[:-2], first[-2:-1], first[-1:], ping, ping[:4], ping[4:], last):
        list(frames.feed(chunk))
        moved.append(frames.received_bytes)
    is_moved = [one < other for one, other in pairwise(moved)]
    assert is_moved == [True, True, True, False, False, False, True]
