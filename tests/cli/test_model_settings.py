"""Settings of a model in the agent file reach the model of `holodeck run`, or are refused with their place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from holodeck_command import run_holodeck

from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import status

TOKEN = "token-of-the-team"
FILE_KEYS: dict[str, Any] = {
    "effort": "low",
    "verbosity": "high",
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "headers": {"X-Team": "${TEAM_TOKEN}"},
    "extra_body": {"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
}
SENT = {
    "reasoning_effort": "low",
    "verbosity": "high",
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "top_k": 20,
    "chat_template_kwargs": {"enable_thinking": False},
}


def _write_agent(folder: Path, **model: Any) -> Path:
    file = folder / "agent.yaml"
    file.write_bytes(orjson.dumps({"name": "helper", "model": model}))
    return file


@pytest.mark.proves("D-25")
@async_test(60)
async def test_the_keys_of_the_model_are_in_its_request(tmp_path: Path) -> None:
    async with ScriptedModel(say("ok")).serve() as server:
        file = _write_agent(tmp_path, provider="openai_compatible", name="m", endpoint=server.url, **FILE_KEYS)
        env = {"TEAM_TOKEN": TOKEN}
        done = await asyncio.to_thread(run_holodeck, "run", file, "Hi", cwd=tmp_path, env=env)
        received = server.received[0]
    assert done.returncode == 0, done.stderr
    assert {name: received.json.get(name) for name in SENT} == SENT
    assert received.headers["x-team"] == TOKEN


@pytest.mark.proves("D-25")
@async_test(60)
async def test_a_header_that_the_provider_quotes_is_not_shown(tmp_path: Path) -> None:

    async with ScriptedModel(status(400, {"error": {"message": f"bad team {TOKEN}"}})).serve() as server:
        file = _write_agent(
            tmp_path, provider="openai_compatible", name="m", endpoint=server.url, headers={"X-Team": "${TEAM_TOKEN}"}
        )
        env = {"TEAM_TOKEN": TOKEN}
        done = await asyncio.to_thread(run_holodeck, "run", file, "Hi", cwd=tmp_path, env=env)
    assert "bad team ***" in done.stderr
    assert TOKEN not in done.stderr + done.stdout


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"provider": "openai", "name": "m", "seed": 0}, "model.seed", "has no meaning"),
    ({"provider": "anthropic", "name": "m", "verbosity": "low"}, "model.verbosity", "has no meaning"),
    ({"provider": "rehearsal", "headers": {"X-A": "b"}}, "model.headers", "has no meaning"),
    ({"provider": "local", "extra_body": {"top_k": 1}}, "model.extra_body", "has no meaning"),
    ({"provider": "openai", "name": "m", "headers": {"authorization": "x"}}, "model.headers", "api_key"),
    ({"provider": "anthropic", "name": "m", "extra_body": {"system": "x"}}, "model.extra_body", "'system'"),
    (
        {"provider": "ollama", "name": "m", "allow_extra_parameters": ["messages"]},
        "model.allow_extra_parameters",
        "'messages'",
    ),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("model", "place", "words"), REFUSED, ids=[place for _, place, _ in REFUSED])
def test_a_key_that_the_provider_does_not_have_is_refused_at_its_place(
    tmp_path: Path, model: dict[str, Any], place: str, words: str
) -> None:
    done = run_holodeck("validate", _write_agent(tmp_path, **model), cwd=tmp_path)
    assert done.returncode == 2
    assert place in done.stdout + done.stderr
    assert words in done.stdout + done.stderr
    assert "agent.yaml:1:" in done.stdout + done.stderr
