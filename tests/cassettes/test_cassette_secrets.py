"""No secret enters a cassette, wherever it is and however it comes back, and a replay needs none of them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from agent_project import AgentProject
from async_tests import async_test
from cassettes.recorded_agent import UNREACHABLE, RecordedAgent

from holodeck.lib.errors import ConfigError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, cassette, say

CANARY = {
    "MODEL_KEY": "canary-model/key+1",
    "MODEL_HEADER": "canary-model-header",
    "SERVER_HEADER": "canary-server-header",
    "SERVER_TOKEN": "canary-server-token",
    "URL_KEY": "canary-url-key",
    "INSTRUCTION_SECRET": "canary-instructions",
    "ENV_VALUE": "canary-env-value",
    "SHORT_PASSWORD": "cnry7",
}
AGENT = """name: demo
model:
  provider: openai_compatible
  name: scripted
  endpoint: "${ENDPOINT}"
  api_key: "${MODEL_KEY}"
  headers: {X-Tenant: "${MODEL_HEADER}"}
instructions: "The secret of the house is ${INSTRUCTION_SECRET}."
tools:
  - type: mcp
    name: calc
    description: d
    transport: http
    url: "${CALC_URL}?api_key=${URL_KEY}"
    headers: {X-Account: "${SERVER_HEADER}", X-Password: "${SHORT_PASSWORD}"}
    auth: {type: bearer, token: "${SERVER_TOKEN}"}
"""


def encode(secret: str) -> list[str]:
    """A secret as texts, addresses, JSON and base64 have it, at each position."""
    return [
        secret,
        quote(secret, safe=""),
        json.dumps({"a": json.dumps({"b": secret})}),
        *(base64.b64encode(b"x" * offset + secret.encode() + b"tail").decode() for offset in range(3)),
    ]


def assert_no_canary(text: str) -> None:
    folded = "".join(text.split())
    for name, secret in CANARY.items():
        assert secret not in text, name
        assert quote(secret, safe="") not in text, name
        for offset in range(3):
            middle = base64.b64encode(b"x" * offset + secret.encode()).decode()[4:-4]
            assert len(middle) < 8 or middle not in folded, name


@async_test(60)
async def test_no_secret_of_the_file_enters_the_cassette_however_it_is_repeated(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, None)
    agent.file.write_text(AGENT)
    repeated = " | ".join(form for name, secret in CANARY.items() if name in AGENT for form in encode(secret))
    async with FaultyMCPServer() as server:
        agent.environ = {**CANARY, "CALC_URL": server.url}
        await agent.record(
            [say(repeated), call("fail", message=repeated)],
            call("echo", text=repeated, **{name: secret for name, secret in CANARY.items() if name in AGENT}),
            say(f"Done: {repeated}"),
            chunk=3,
        )
    assert "Done: " in agent.text
    assert_no_canary(agent.text)
    replayed = await agent.replay(environ=dict.fromkeys(CANARY, "another-value-in-ci"))
    assert '"status": "completed"' in replayed[-1]


@async_test(60)
async def test_a_replay_needs_no_secret_and_every_other_variable(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, None)
    agent.file.write_text(AGENT)
    async with FaultyMCPServer() as server:
        agent.environ = {**CANARY, "CALC_URL": server.url}
        recorded = await agent.record(call("add", a=1, b=2), say("It is 3."))
    agent.environ = {"CALC_URL": "http://127.0.0.1:1/mcp"}
    assert await agent.replay() == recorded
    agent.environ = {}
    with pytest.raises(ConfigError, match="'CALC_URL' not found"):
        await agent.replay()


@async_test(60)
async def test_the_environment_of_a_server_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = AgentProject(tmp_path)
    more = f', env: {{REGION: "{CANARY["ENV_VALUE"]}", PASSWORD: "${{SHORT_PASSWORD}}"}}'
    agent = RecordedAgent(project.path, project.npx_server("calc", more=more))
    agent.environ = CANARY
    monkeypatch.setenv("PATH", project.env["PATH"])
    repeated = f"{CANARY['ENV_VALUE']} and {CANARY['SHORT_PASSWORD']}"
    recorded = await agent.record(call("fail", message=repeated), say(repeated))
    assert CANARY["SHORT_PASSWORD"] in recorded[-1], "the recorded run itself is not changed"
    assert_no_canary(agent.text)
    assert "*** and ***" in (await agent.replay())[-1]


@async_test(60)
async def test_what_has_the_name_or_form_of_a_secret_is_masked(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, None)
    told = 'It is {"password": "hunter-two"}, Bearer abcdefghijkl, https://x.example/?api_key=qwertz, ftp://me:geheim@x'
    async with FaultyMCPServer() as server:
        agent.write(f"  - {{type: mcp, name: calc, description: d, transport: http, url: '{server.url}'}}")
        await agent.record(call("echo", text=told, password="hunter-two", access_token="zuiop"), say(told))
    for secret in ("hunter-two", "abcdefghijkl", "qwertz", "geheim", "zuiop"):
        assert secret not in agent.text
    assert '"status": "completed"' in (await agent.replay())[-1]


# Texts with a secret each, as tools print files, commands and answers of others.
PLAIN_TEXTS = {
    "hunter-two": "DB_PASSWORD=hunter-two",
    "hunter-three": "the password: hunter-three, as agreed",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AKIAIOSFODNN7EXAMPLE": "id AKIAIOSFODNN7EXAMPLE of the account",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345": "token ghp_0123456789abcdefghijABCDEFGHIJ012345.",
    "sk-proj-abcdefghij0123456789": "OpenAI: sk-proj-abcdefghij0123456789",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv": "(AIzaSyA0123456789abcdefghijklmnopqrstuv)",
    "s3ss10n": "Set-Cookie: theme=dark; sid=s3ss10n; Path=/",
    "c00k1e": "> Cookie: a=b; sid=c00k1e",
    "dXNlcjpwYXNz": "Authorization: Basic dXNlcjpwYXNz",
    "MIIEvQIBADANBg": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhk\n-----END PRIVATE KEY-----",
    "Zm9vYmFyYmF6": "AccountName=x;AccountKey=Zm9vYmFyYmF6;",
}


@async_test(60)
async def test_plain_passwords_cookies_and_keys_of_clouds_in_texts_are_masked(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, None)
    told = (
        "\n".join(PLAIN_TEXTS.values()) + "\nThe passwords of 3 users are secret: ask them. See task-1234567890123456."
    )
    async with FaultyMCPServer() as server:
        agent.write(f"  - {{type: mcp, name: calc, description: d, transport: http, url: '{server.url}'}}")
        await agent.record(call("echo", text=told), say(told))
    assert not [secret for secret in PLAIN_TEXTS if secret in agent.text]
    for word in ("passwords of 3 users", "task-1234567890123456", "of the account", "AccountName"):
        assert word in agent.text, word
    assert '"status": "completed"' in (await agent.replay())[-1]


@async_test(60)
async def test_an_error_of_a_server_or_model_has_no_secret(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, None)
    agent.file.write_text(AGENT)
    async with FaultyMCPServer(token="another") as server:
        agent.environ = {**CANARY, "CALC_URL": server.url_for("http")}
        server.mode = "http-401"
        recorded = await agent.record(say(CANARY["SERVER_TOKEN"]))
    assert '"missing_servers": [{' in recorded[-1]
    assert_no_canary(agent.text)


def test_a_model_in_code_has_its_key_masked(tmp_path: Path) -> None:
    import holodeck

    model = holodeck.LLM.model_validate(
        {"provider": "openai_compatible", "name": "m", "endpoint": UNREACHABLE, "api_key": CANARY["MODEL_KEY"]}
    )
    with cassette(tmp_path / "x.yaml"):
        result = holodeck.Agent(model).run_sync(f"My key is {CANARY['MODEL_KEY']}.")
    assert result.status == "failed"
    assert_no_canary((tmp_path / "x.yaml").read_text())
    with cassette(tmp_path / "x.yaml", record="never"):
        again = holodeck.Agent(model).run_sync(f"My key is {CANARY['MODEL_KEY']}.")
    assert again.error == result.error


def test_a_scripted_model_is_no_secret(tmp_path: Path) -> None:
    import holodeck

    with cassette(tmp_path / "x.yaml"):
        holodeck.Agent(ScriptedModel(say("The keyword of the author is token."))).run_sync("What?")
    assert "The keyword of the author is token." in (tmp_path / "x.yaml").read_text()
