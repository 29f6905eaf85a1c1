"""`holodeck model`: what can be pulled, what is here, and honest words when it does not work."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from holodeck.cli.commands.model import command
from holodeck.lib.errors import ModelError
from holodeck.providers.local.weights import KNOWN_WEIGHTS


def test_the_list_shows_what_is_here(tmp_path: Path) -> None:
    runner = CliRunner(env={"XDG_CACHE_HOME": str(tmp_path)})
    shown = runner.invoke(command, ["list"])
    assert shown.exit_code == 0
    assert all(weights.name in shown.output for weights in KNOWN_WEIGHTS)
    assert shown.output.count("not pulled") == len(KNOWN_WEIGHTS)
    listed = json.loads(runner.invoke(command, ["list", "--json"]).output)
    assert listed["folder"].startswith(str(tmp_path))
    assert [model["is_pulled"] for model in listed["models"]] == [False, False]
    assert listed["models"][0]["sha256"] == KNOWN_WEIGHTS[0].sha256


def test_a_whole_file_is_not_pulled_again(tmp_path: Path) -> None:
    folder = tmp_path / "holodeck" / "models"
    folder.mkdir(parents=True)
    with (folder / KNOWN_WEIGHTS[0].file).open("wb") as file:
        file.truncate(KNOWN_WEIGHTS[0].size)  # sparse: it uses no disk space
    runner = CliRunner(env={"XDG_CACHE_HOME": str(tmp_path)})
    assert "was there already" in runner.invoke(command, ["pull", KNOWN_WEIGHTS[0].name]).output
    assert json.loads(runner.invoke(command, ["pull", KNOWN_WEIGHTS[0].name, "--json"]).output)["was_there"] is True


def test_a_wrong_file_and_a_wrong_name_are_sentences(tmp_path: Path) -> None:
    runner = CliRunner(env={"XDG_CACHE_HOME": str(tmp_path)})
    (tmp_path / "w.gguf").write_bytes(b"GGUF")
    for arguments, words in (
        (["pull", KNOWN_WEIGHTS[0].name, "--from", str(tmp_path / "w.gguf")], "it has 4 bytes"),
        (["pull", KNOWN_WEIGHTS[0].name, "--from", str(tmp_path / "none.gguf")], "There is no file"),
        (["pull", KNOWN_WEIGHTS[0].name, "--from", "http://127.0.0.1:9/w.gguf"], "stopped at 0 of 491 MB"),
    ):
        failed = runner.invoke(command, arguments)
        assert isinstance(failed.exception, ModelError)
        assert words in str(failed.exception)
    unknown = runner.invoke(command, ["pull", "gpt-9"])
    assert (unknown.exit_code, "'gpt-9' is not one of 'qwen" in unknown.output) == (2, True)
