"""`holodeck init`: a project that is valid as it stands, and nothing lost."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from holodeck_command import run_holodeck


@pytest.mark.proves("000:SC-001")
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--mcp", "files", "--mcp", "memory", "--mcp", "time", "--mcp", "git", "--mcp", "fetch", "--mcp", "everything"),
        ("--mcp", "@scope/mcp-server-thing@1.2.3", "--mcp", "uvx:some-tool", "--mcp", "docker:ghcr.io/a/b:latest"),
        ("--mcp", "https://mcp.example.com/mcp", "--mcp", "https://other.example/sse"),
        ("--model", "openai/gpt-5", "--name", "My Agent", "--description", 'says "hi": {x} ${y} # z'),
        ("--model", "anthropic"),
        ("--model", "ollama/qwen3"),
        ("--model", "azure_openai"),
        ("--model", "openai_compatible/m"),
        ("--model", "local"),
    ],
)
def test_a_new_project_is_valid_as_it_stands(tmp_path: Path, flags: tuple[str, ...]) -> None:
    made = run_holodeck("init", "my-agent", *flags, "--non-interactive", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    for name in ("agent.yaml", "instructions.md", ".env.example", ".gitignore"):
        assert (tmp_path / "my-agent" / name).is_file()
    # The extra that the local model needs; only that it is there is looked at.
    (tmp_path / "xllamacpp.py").touch()
    checked = run_holodeck("validate", "my-agent", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert checked.returncode == 0, checked.stderr
    text = (tmp_path / "my-agent" / "agent.yaml").read_text()
    schema = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    jsonschema_rs.validate(json.loads((tmp_path / "my-agent" / schema).read_text()), yaml.safe_load(text))


@pytest.mark.parametrize(
    ("flags", "called", "counts"),
    [((), 'files.read_text_file(path="welcome.md")', "2 passed"), (("--mcp", "everything"), "", "1 passed")],
)
def test_the_cases_of_a_new_project_pass_as_they_stand(
    tmp_path: Path, flags: tuple[str, ...], called: str, counts: str
) -> None:
    run_holodeck("init", "my-agent", *flags, "--non-interactive", cwd=tmp_path)
    done = run_holodeck("test", "my-agent", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert called in done.stdout
    assert done.stdout.splitlines()[-1] == counts


def test_what_is_there_is_never_overwritten_without_force(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "instructions.md").write_text("mine")
    refused = run_holodeck("init", "p", cwd=tmp_path)
    assert refused.returncode == 1
    assert "instructions.md" in refused.stderr
    assert (tmp_path / "p" / "instructions.md").read_text() == "mine"
    assert not (tmp_path / "p" / "agent.yaml").exists(), "all files or none"
    assert run_holodeck("init", "p", "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "p" / "instructions.md").read_text() != "mine"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model", "gemini"), "there is no provider 'gemini'"),
        (("--mcp", "nonsense server"), "npx:PACKAGE"),
        (("--mcp", 'npx:a"]\nevil: true'), "npx:PACKAGE"),
        (("--mcp", "files", "--mcp", "files"), "named 'files'"),
        (("--name", "1 bad name!"), "begins with a letter"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_anything_is_written(
    tmp_path: Path, flags: tuple[str, ...], words: str
) -> None:
    done = run_holodeck("init", "p", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "p").exists()


def test_on_a_terminal_it_asks_and_asks_again_when_it_cannot_use_the_answer(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck", "init", "asked"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = ""
    for question, answer in (
        ("Name", "7!"),
        ("Name", "asked-agent"),
        ("provider", "openai"),
        ("MCP servers", "clock"),
        ("MCP servers", "time"),
    ):
        while question not in said:
            said += os.read(ours, 4096).decode()
        said = ""
        os.write(ours, f"{answer}\n".encode())
    assert process.wait(timeout=30) == 0
    os.close(ours)
    text = (tmp_path / "asked" / "agent.yaml").read_text()
    for words in ('name: "asked-agent"', "provider: openai", "server: mcp-server-time"):
        assert words in text
