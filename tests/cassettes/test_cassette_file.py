"""The file of a cassette: what is written is read again, and a damaged one is refused with its line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holodeck
from holodeck.cassettes.cassette import Cassette, TrackData, describe_age
from holodeck.cassettes.cassette_file import read_cassette, write_cassette
from holodeck.lib.errors import ConfigError
from holodeck.testing import ScriptedModel, call, cassette, say

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["1e5", "0o17", "yes", "null", "~", "", " x ", "a\n b \n", "\n", "a: b", "- a", "# a", "2026-01-01", "<<", "\x00"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS.filter(lambda key: key != "<<"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(params=st.dictionaries(TEXTS.filter(lambda key: key != "<<"), VALUES, max_size=4), result=VALUES)
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_again(
    params: dict[str, Any], result: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    entry = {"entry": 1, "server": "s", "request": "tools/call", "params": params, "result": result}
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    write_cassette(Cassette(path=path, recorded_at=now, tracks={"": TrackData(recorded_at=now, entries=[entry])}))
    assert read_cassette(path).tracks[""].entries == [entry]


def record(path: Path) -> None:
    def look() -> str:
        return "line one\nline two"

    model = ScriptedModel([say("I look."), call("look")], call("look"), say("Done."))
    with cassette(path):
        holodeck.Agent(model, tools=[look], instructions="Look.").run_sync("Go.")


def test_a_request_is_written_whole_once_and_then_what_it_adds(tmp_path: Path) -> None:
    record(tmp_path / "x.yaml")
    text = (tmp_path / "x.yaml").read_text()
    assert text.count("instructions: Look.") == 1
    assert text.count("user: Go.") == 1
    assert text.count("continues: ") == 2
    assert text.count("description: ") == 1, "a tool is described once"
    assert "text: |-\n          line one\n          line two\n" in text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: 1", "version: 2", ("x.yaml:3:1", "version 2", "up to 1")),
        ("version: 1", "fersion: 1", ("'version' is missing",)),
        ("- entry: 2", "- entry: 7", ("entry 2 is expected here",)),
        ("continues: 1", "continues: 9", ("no request of a model in entry 9",)),
        ("finish: stop", "finish: stop\n      usage: {apples: 3}", ("this is no answer of a model",)),
        ("tools: [look]", "tools: [jump]", ("'jump' is not defined in this cassette",)),
        ("recorded_at: '", "recorded_at: 'x", ("this is not a time",)),
        ("entries:", "entries: {", ("this is not valid YAML",)),
    ],
)
def test_a_damaged_or_newer_cassette_is_refused_with_its_line(
    old: str, new: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "x.yaml"
    record(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        cassette(path)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.problems[0].line is not None


def test_the_age_of_a_cassette_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    record(path)
    text = path.read_text()
    stamp = next(line for line in text.splitlines() if line.startswith("recorded_at"))
    path.write_text(
        text.replace(stamp, f"recorded_at: '{(datetime.now(UTC) - timedelta(days=12, hours=3)).isoformat()}'")
    )
    age = cassette(path, record="never").age
    assert age is not None
    assert describe_age(age) == "12 days ago"
    assert describe_age(timedelta(seconds=3)) == "just now"
    assert describe_age(timedelta(hours=1, minutes=3)) == "1 hour ago"
