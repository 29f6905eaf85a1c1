"""`holodeck init`: a project that is valid as it stands, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from async_tests import async_test
from holodeck_command import run_holodeck

from holodeck import Agent, ConfigError
from holodeck.models.llm import LLM
from holodeck.models.provider import PROVIDER_SPECS
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import status


@pytest.mark.parametrize(
    ("folder", "next_step"), [(".", "holodeck chat"), ("a b", "cd 'a b' && holodeck chat")], ids=["here", "elsewhere"]
)
def test_the_next_step_is_a_command_that_works(tmp_path: Path, folder: str, next_step: str) -> None:
    made = run_holodeck("init", folder, "--non-interactive", cwd=tmp_path)
    assert made.stdout.endswith(f"\nNext: {next_step}\n"), made.stderr


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
        *(("--model", name) for name in ("gemini", "mistral", "groq", "openrouter", "deepseek", "xai", "cerebras")),
        ("--model", "openrouter:anthropic/claude-sonnet-5-5"),
        ("--model", "vllm/qwen"),
    ],
)
def test_a_new_project_is_valid_as_it_stands(tmp_path: Path, flags: tuple[str, ...]) -> None:
    made = run_holodeck("init", "my-agent", *flags, "--non-interactive", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    for name in ("agent.yaml", "instructions.md", ".env.example", ".gitignore"):
        assert (tmp_path / "my-agent" / name).is_file()
    # The extra that the local model needs; only that it is there is looked at.
    (tmp_path / "xllamacpp.py").touch()
    keys = {spec.key_variable: "sk-x" for spec in PROVIDER_SPECS.values() if spec.key_variable}
    checked = run_holodeck("validate", "my-agent", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), **keys})
    assert checked.returncode == 0, checked.stderr
    names_others = any(flag.startswith(("@", "uvx:", "docker:", "http")) for flag in flags)
    assert names_others or checked.stderr == "", "its own servers have fixed versions"
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
        (("--model", "gemni"), "there is no provider 'gemni'"),
        (("--model", "openai_compatible"), "openai_compatible/NAME"),
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


@pytest.mark.parametrize(
    ("name", "meant"), [("google", "gemini"), ("lmstudio", "lm_studio"), ("claude", "anthropic"), ("x-ai", "xai")]
)
def test_a_provider_by_the_name_of_other_programs_gets_a_hint_in_every_place(
    tmp_path: Path, name: str, meant: str
) -> None:
    (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {{provider: {name}, name: m}}\n")
    checked = run_holodeck("validate", cwd=tmp_path)
    assert (checked.returncode, f"Did you mean '{meant}'?" in checked.stderr) == (2, True), checked.stderr
    made = run_holodeck("init", "p", "--model", name, cwd=tmp_path)
    assert (made.returncode, f"Did you mean '{meant}'?" in made.stderr) == (2, True), made.stderr
    with pytest.raises(ConfigError, match=f"Did you mean '{meant}:m'?"):
        Agent(f"{name}:m")


def test_every_proposed_model_of_a_service_is_in_the_price_table() -> None:
    proposed = {
        provider: LLM(provider=provider, name=spec.default_model).effective_price
        for provider, spec in PROVIDER_SPECS.items()
        if spec.default_model and spec.key_variable and not spec.needs_endpoint
    }
    assert len(proposed) > 10
    assert [provider for provider, price in proposed.items() if price is None] == []


@async_test
async def test_on_a_terminal_it_asks_for_the_model_tries_it_and_stores_the_key_for_its_owner(tmp_path: Path) -> None:
    key = "sk-typed-and-never-shown"
    # Enter for the key: there is none yet, and without one nothing is tried.
    answers = [("Name of the agent", "7!"), ("Name of the agent", "asked-agent"), ("Provider", "gogle")]
    answers += [("Provider", "google"), ("Model [", ""), ("Key for Google Gemini", "")]
    answers += [("MCP servers", "clock"), ("MCP servers", "time")]
    said, code = await asyncio.to_thread(answer_init, tmp_path, "asked", answers)
    assert (code, "Not tried, because there is no key yet." in said) == (0, True), said
    assert not (tmp_path / "asked" / ".env").exists()
    async with ScriptedModel(status(401), [say("Ready.")]).serve() as model:
        answers = [("Name of the agent", ""), ("Provider", "16"), ("Model:", "mine")]
        answers += [("Address", "127.0.0.1:1/v1"), ("Key for", ""), ("must begin with a scheme", "")]
        answers += [("Model [mine]", ""), ("Address", "http://127.0.0.1:1/v1"), ("Key for", ""), ("all the same", "n")]
        answers += [("Provider", "openai_compatible"), ("Model [mine]", ""), ("Address", model.url), ("Key for", "no")]
        answers += [("all the same", ""), ("Provider", ""), ("Model [mine]", ""), ("Address", ""), ("Key for", key)]
        said, code = await asyncio.to_thread(answer_init, tmp_path, "tried", [*answers, ("MCP servers", "files")])
    assert (code, key in said) == (0, False), said
    assert said.index("could not be reached") < said.index("It answered in")
    assert [each.headers["authorization"] for each in model.received] == ["Bearer no", f"Bearer {key}"]
    text = (tmp_path / "asked" / "agent.yaml").read_text()
    for words in ('name: "asked-agent"', "provider: gemini", "${GEMINI_API_KEY:-}", "mcp-server-time=="):
        assert words in text
    env = tmp_path / "tried" / ".env"
    assert (env.read_text(), env.stat().st_mode & 0o777) == (f"MODEL_API_KEY={key}\n", 0o600)
    assert key not in (tmp_path / "tried" / "agent.yaml").read_text()


def answer_init(folder: Path, project: str, answers: Sequence[tuple[str, str]]) -> tuple[str, int]:
    """Run `init` at a terminal with an answer for each question. Returns what it printed, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck", "init", project],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said, seen = "", 0
    for question, answer in [*answers, ("Next:", "")]:
        while (at := said.find(question, seen)) < 0:
            try:
                said += os.read(ours, 4096).decode()
            except OSError:
                pytest.fail(f"'{question}' was not asked:\n{said}")
        seen = at + len(question)
        if question != "Next:":
            os.write(ours, f"{answer}\n".encode())
    code = process.wait(timeout=60)
    os.close(ours)
    return said, code
