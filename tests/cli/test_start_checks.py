"""What `holodeck serve` and `holodeck run` refuse, `holodeck validate` refuses as well, with the same words."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from holodeck_command import run_holodeck

MODEL = "models: [{name: fast, model: {provider: rehearsal}}]\n"
AGENT = "name: demo\n"
REMOTE = (
    AGENT + "tools: [{type: mcp, name: t, description: d, transport: http, url: 'https://h.example/', auth: {%s}}]\n"
)
MACHINE = "type: oauth_client_credentials, client_id: me"
POSTGRES = "storage: {url: 'postgresql://me@127.0.0.1:1/db%s'}\n"


def _project(folder: Path, name: str, text: str, *, without: str = "") -> tuple[Path, dict[str, str]]:
    """A folder with one file, and an environment in which a package is missing."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / name).write_text(text)
    if not without:
        return project, {}
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "sitecustomize.py").write_text(f"import sys\nsys.modules[{without!r}] = None\n")
    return project, {"PYTHONPATH": str(hidden)}


@pytest.mark.parametrize(
    ("text", "without", "where", "words"),
    [
        (MODEL + "listen: {host: 0.0.0.0}\n", "", "listen.host", "holodeck keys create"),
        (MODEL + "background: {durable: true}\n", "dbos", "background.durable", "[durable]'"),
        (
            MODEL + "background: {durable: true}\nstorage: {url: 'sqlite://:memory:'}\n",
            "",
            "background.durable",
            "outlives the process",
        ),
        (MODEL + POSTGRES % "", "asyncpg", "storage.url", "[postgres]'"),
        (MODEL + POSTGRES % "?sslmode=verify-full&sslrootcert=ca.pem", "", "storage.url", "'sslrootcert'"),
        (MODEL + "storage: {url: 'sqlite:///data/kept.db'}\n", "", "storage.url", "mkdir -p"),
        (MODEL + "storage: {url: 'sqlite:///.'}\n", "", "storage.url", "is not a file"),
        ("models: [{name: fast, model: {provider: local}}]\n", "", "models[0].model.provider", "[local]'"),
        (MODEL + "jwt: {issuer: i, audience: a, jwks_file: keys.json}\n", "", "jwt.jwks_file", "no such file"),
    ],
)
def test_a_gateway_that_cannot_start_is_not_valid(
    tmp_path: Path, text: str, without: str, where: str, words: str
) -> None:
    project, env = _project(tmp_path, "gateway.yaml", text, without=without)
    refusals = [run_holodeck(command, "gateway.yaml", cwd=project, env=env) for command in ("validate", "serve")]
    for done in refusals:
        assert done.returncode == 2, done.stdout + done.stderr
        assert where in done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert refusals[0].stderr.startswith(refusals[1].stderr), "validate adds its last line"
    assert [path.name for path in project.iterdir()] == ["gateway.yaml"], "nothing was made"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (AGENT + "model: {provider: local}\n", "model.provider", "[local]'"),
        (REMOTE % f"{MACHINE}, client_secret: s", "tools[0].auth", "pinned 'token_url' or 'issuer'"),
        (REMOTE % f"{MACHINE}, token_url: 'https://a.example/'", "tools[0].auth", "'private_key_file'"),
        (REMOTE % f"{MACHINE}, client_secret: s, issuer: 'http://a.example/'", "tools[0].auth", "'issuer' must use"),
        (
            REMOTE % f"{MACHINE}, issuer: 'https://a.example/', private_key_file: key.pem",
            "tools[0].auth.private_key_file",
            "no such file",
        ),
        (REMOTE % "type: oauth_authorization_code, client_secret: s", "tools[0].auth", "pinned 'issuer'"),
        (
            AGENT + "tools: [{type: function, name: t, file: agent.yaml, function: f}]\n",
            "tools[0].file",
            "Python file",
        ),
    ],
)
def test_an_agent_that_cannot_start_is_not_valid(tmp_path: Path, text: str, where: str, words: str) -> None:
    project, env = _project(tmp_path, "agent.yaml", text)
    for args in (["validate"], ["run", "Hello"], ["serve", "agent.yaml"]):
        done = run_holodeck(*args, cwd=project, env=env)
        assert done.returncode == 2, done.stdout + done.stderr
        assert where in done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_an_agent_file_is_checked_with_the_variables_that_serve_reads(tmp_path: Path) -> None:
    project, env = _project(tmp_path, "agent.yaml", AGENT)
    env |= {"HOLODECK_LISTEN__HOST": "0.0.0.0", "HOLODECK_STORAGE__URL": "sqlite:////n0where/kept.db"}
    for command in ("validate", "serve"):
        done = run_holodeck(command, "agent.yaml", cwd=project, env=env)
        assert done.returncode == 2
        assert "HOLODECK_LISTEN__HOST  listen.host" in done.stderr
        assert "HOLODECK_STORAGE__URL  storage.url" in done.stderr
        assert "n0where" not in done.stderr, "the value of a variable is never shown"
    assert run_holodeck("run", "-q", "Hello", cwd=project, env=env).returncode == 0, "it does not listen"


INSTRUCTIONS = AGENT + "instructions: {file: NAME}\n"
SERVER = AGENT + "tools: [{type: mcp, name: t, description: d, command: npx, server: s, envFile: NAME}]\n"


@pytest.mark.parametrize(
    ("file", "text", "name", "kind"),
    [
        ("agent.yaml", INSTRUCTIONS, "pipe", "a pipe"),
        ("agent.yaml", INSTRUCTIONS, "folder", "a folder"),
        ("agent.yaml", INSTRUCTIONS, "/dev/zero", "a device"),
        ("agent.yaml", INSTRUCTIONS, "/dev/stdin", "a pipe"),
        ("agent.yaml", INSTRUCTIONS, "/proc/self/fd/0", "a pipe"),
        ("agent.yaml", AGENT + "response_format: NAME\n", "pipe", "a pipe"),
        ("agent.yaml", SERVER, "pipe", "a pipe"),
        ("gateway.yaml", MODEL + "seal_key_file: NAME\n", "pipe", "a pipe"),
        ("gateway.yaml", MODEL + "jwt: {issuer: i, audience: a, jwks_file: NAME}\n", "pipe", "a pipe"),
        ("gateway.yaml", "agents: [{file: NAME}]\n", "pipe", "a pipe"),
    ],
)
def test_only_a_regular_file_is_read_for_a_file_that_a_file_names(
    tmp_path: Path, file: str, text: str, name: str, kind: str
) -> None:
    project, env = _project(tmp_path, file, text.replace("NAME", name))
    _make_others(project)
    done = run_holodeck("validate", file, cwd=project, env=env)
    assert done.returncode == 2
    assert f"this is {kind}, not a file" in done.stderr


def _make_others(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()


@pytest.mark.parametrize(
    "args",
    [
        ["validate", "pipe"],
        ["serve", "pipe"],
        ["run", "pipe", "Hello"],
        ["run", "--image", "pipe", "Hello"],
        ["mcp", "list", "--file", "pipe"],
    ],
)
def test_only_a_regular_file_is_read_for_a_file_that_a_command_names(tmp_path: Path, args: list[str]) -> None:
    project, env = _project(tmp_path, "agent.yaml", AGENT)
    _make_others(project)
    done = run_holodeck(*args, cwd=project, env=env)
    assert done.returncode == 2
    assert "this is a pipe, not a file" in done.stderr


def test_a_secret_behind_symbolic_links_is_read_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    project, env = _project(tmp_path, "gateway.yaml", MODEL + "seal_key_file: mounted/seal\n")
    (project / "mounted" / "..2026").mkdir(parents=True)
    (project / "mounted" / "..2026" / "seal").write_bytes(orjson.dumps(os.urandom(32).hex()))
    (project / "mounted" / "..data").symlink_to("..2026")
    (project / "mounted" / "seal").symlink_to("..data/seal")
    assert run_holodeck("validate", "gateway.yaml", cwd=project, env=env).returncode == 0
