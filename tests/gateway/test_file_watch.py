"""Changed files are noticed however they are saved, and only once they are written whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.gateway.reload import FileWatch, take_stamps


def save_by_rename(file: Path) -> None:
    draft = file.with_name("draft")
    draft.write_text("new")
    draft.replace(file)


def save_in_place(file: Path) -> None:
    file.write_text("other")


def swap_link(file: Path) -> None:
    """Replace a link on the way to the file, as Kubernetes does with a mounted ConfigMap."""
    later = file.parent / "..later"
    later.mkdir()
    (later / file.name).write_text("new")
    (file.parent / "..data_tmp").symlink_to("..later")
    (file.parent / "..data_tmp").replace(file.parent / "..data")


@pytest.mark.parametrize("change", [save_by_rename, save_in_place, swap_link, Path.unlink])
@async_test
async def test_a_change_counts_at_the_second_look_and_once(tmp_path: Path, change: Callable[[Path], None]) -> None:
    file = tmp_path / "gateway.yaml"
    if change is swap_link:
        (tmp_path / "..first").mkdir()
        (tmp_path / "..first" / file.name).write_text("old")
        (tmp_path / "..data").symlink_to("..first")
        file.symlink_to("..data/gateway.yaml")
    else:
        file.write_text("old")
    watch = FileWatch()
    watch.mark_read(take_stamps([file]))
    assert [await watch.find_change() for _ in range(3)] == [False, False, False]
    change(file)
    assert [await watch.find_change() for _ in range(2)] == [False, True]
    watch.mark_read(take_stamps([file]))
    assert [await watch.find_change() for _ in range(2)] == [False, False]


@async_test
async def test_a_file_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("old and whole")
    watch = FileWatch()
    watch.mark_read(take_stamps([file]))
    with file.open("w") as writing:
        for part in ("", "half", " and", " whole"):
            writing.write(part)
            writing.flush()
            assert not await watch.find_change()
    assert await watch.find_change()


@async_test
async def test_a_file_that_appears_is_noticed(tmp_path: Path) -> None:
    watch = FileWatch()
    watch.mark_read(take_stamps([tmp_path / ".env"]))
    assert [await watch.find_change() for _ in range(2)] == [False, False]
    (tmp_path / ".env").write_text("A=1")
    assert [await watch.find_change() for _ in range(2)] == [False, True]


@async_test
async def test_the_same_size_at_the_same_time_in_another_file_is_a_change(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("one")
    watch = FileWatch()
    watch.mark_read(take_stamps([file]))
    status = file.stat()
    draft = tmp_path / "draft"
    draft.write_text("two")
    os.utime(draft, ns=(status.st_atime_ns, status.st_mtime_ns))
    draft.replace(file)
    assert [await watch.find_change() for _ in range(2)] == [False, True]
