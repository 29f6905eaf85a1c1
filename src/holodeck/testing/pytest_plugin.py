"""The pytest plugin: the fixture and the marker `cassette`, and the option `--cassette-record`.

It comes with the package, so that pytest loads it everywhere. It imports nothing of HoloDeck before a test uses it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette

_OPTION = "--cassette-record"
_UNUSABLE = re.compile(r"[^\w.=-]+")
_OPENED: pytest.StashKey[OpenedCassette] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("holodeck").addoption(
        _OPTION,
        choices=("auto", "always", "never"),
        default="auto",
        help="Whether the fixture 'cassette' records: 'auto' where there is no file (not in CI), 'always', or 'never'.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cassette(file): record the agents of this test into a cassette, or replay them (HoloDeck)"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a test with the marker use the fixture, before all other fixtures."""
    names = getattr(item, "fixturenames", None)
    if isinstance(names, list) and "cassette" not in names and item.get_closest_marker("cassette") is not None:
        names.insert(0, "cassette")


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[OpenedCassette]:
    """Yield the cassette of this test: `cassettes/MODULE/TEST.yaml` beside the file of the test, or that of the
    marker."""
    from holodeck.cassettes.opened_cassette import OpenedCassette

    opened = OpenedCassette(
        _find_path(request.node),
        request.config.getoption(_OPTION),
        how_to_record=f"pytest {_OPTION}=always",
        is_process_wide=True,
    )
    request.node.stash[_OPENED] = opened
    with opened:
        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """End the cassette with the test itself: what differs from the recording fails the test, not its teardown."""
    opened = pyfuncitem.stash.get(_OPENED, None)
    try:
        result = yield
    except BaseException as error:
        if opened is not None:
            opened.finish(error)
        raise
    if opened is not None:
        opened.finish()
    return result


def _find_path(test: pytest.Item) -> Path:
    marker = test.get_closest_marker("cassette")
    if marker is not None and marker.args:
        return test.path.parent / str(marker.args[0])
    return test.path.parent / "cassettes" / test.path.stem / f"{_UNUSABLE.sub('-', test.name).strip('-')}.yaml"
