"""`holodeck keys` on a gateway file: create, list, update, rotate, revoke, with the rest of it as it was written."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process
from holodeck_command import run_holodeck

FILE = """# The gateway of the team
models:
  - name: small   # cheap
    model: {provider: rehearsal}
  - name: big
    model: {provider: rehearsal}
listen: {port: 0}
storage: {url: "sqlite://:memory:"}
"""
KEY = re.compile(r"hd-[A-Za-z0-9_-]{43}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "gateway.yaml").write_text(FILE)
    return project


def run_keys(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return run_holodeck("keys", *args, cwd=folder)


def key_in(done: subprocess.CompletedProcess[str]) -> str:
    """The one key that a command has printed, which is on standard output only."""
    assert done.returncode == 0, done.stderr
    assert not KEY.search(done.stderr)
    (key,) = KEY.findall(done.stdout)
    return str(key)


async def list_models(folder: Path, *keys: str) -> list[list[str] | int]:
    """What each key sees of the models of a gateway that is started now: names, or the status of a refusal."""
    seen: list[list[str] | int] = []
    async with run_gateway_process(folder / "gateway.yaml") as gateway:
        for key in keys:
            headers = {"authorization": f"Bearer {key}"}
            status, listed, _ = await gateway.send("GET", "/v1/models", None, headers)
            seen.append([model["id"] for model in listed["data"]] if status == 200 else status)
    return seen


@pytest.mark.proves("D-39")
@async_test(120)
async def test_a_created_key_has_its_scope_until_it_is_rotated_and_revoked(folder: Path) -> None:
    first = key_in(run_keys(folder, "create", "alice", "-f", "gateway.yaml", "--allow-models", "*,!big"))
    ops = key_in(run_keys(folder, "create", "ops", "-f", ".", "--role", "operator"))
    assert (folder / "gateway.yaml").read_text().startswith(FILE + "keys:\n")
    assert await list_models(folder, first, ops) == [["small"], ["small", "big"]]
    second = key_in(run_keys(folder, "rotate", "alice", "--grace", "1h"))
    third = key_in(run_keys(folder, "rotate", "ops"))
    assert await list_models(folder, first, second, ops, third) == [["small"], ["small"], 401, ["small", "big"]]
    assert run_keys(folder, "revoke", "alice").returncode == 0
    assert await list_models(folder, first, second, third) == [401, 401, ["small", "big"]]


def test_the_list_shows_scope_limits_and_no_hash(folder: Path) -> None:
    run_keys(folder, "create", "alice", "-f", ".", "--allow-tools", "github.*", "--allow-tools", "!github.delete_*")
    run_keys(folder, "create", "bob", "-f", ".", "--role", "operator", "--allow-models", "")
    run_keys(folder, "rotate", "bob", "--grace", "7d")
    text = (folder / "gateway.yaml").read_text() + "    limits: {requests_per_minute: 60}\n"
    (folder / "gateway.yaml").write_text(text + '  - name: carol\n    hash: "${CAROL_HASH}"\n')
    listed = json.loads(run_keys(folder, "list", "--json").stdout)
    assert [each["name"] for each in listed] == ["alice", "bob", "carol"]
    assert [each["role"] for each in listed] == [None, "operator", None]
    assert [each["allow"] for each in listed] == [
        {"tools": ["github.*", "!github.delete_*"]},
        {"models": []},
        None,
    ]
    expires = datetime.fromisoformat(listed[1]["old_hash_expires"]) - datetime.now(UTC)
    assert timedelta(days=6) < expires <= timedelta(days=7)
    assert listed[1]["limits"] == {"requests_per_minute": 60}
    shown = run_holodeck("keys", "list", cwd=folder, env={"COLUMNS": "200"}).stdout
    for words in ("tools: github.*, !github.delete_*", "models: none", "everything", "requests_per_minute 60", "until"):
        assert words in shown
    hashes = re.findall(r"[0-9a-f]{64}", text)
    assert len(hashes) == 3
    assert not any(each[:8] in shown + json.dumps(listed) for each in hashes)


@async_test(120)
async def test_a_key_is_narrowed_and_widened_by_updates_and_goes_on_working(folder: Path) -> None:
    key = key_in(run_keys(folder, "create", "alice", "-f", "gateway.yaml", "--allow-tools", "a.*"))
    done = run_keys(folder, "update", "alice", "--allow-models", "*,!big", "--limits", "in_flight=4,sockets=0")
    assert (done.returncode, done.stdout) == (0, "alice is changed in gateway.yaml.\n")
    assert await list_models(folder, key) == [["small"]]
    (listed,) = json.loads(run_keys(folder, "list", "--json").stdout)
    assert listed["allow"] == {"tools": ["a.*"], "models": ["*", "!big"]}, "what is not given stays"
    assert listed["limits"] == {"in_flight": 4, "sockets": 0}
    done = run_keys(folder, "update", "alice", "--allow-all", "--role", "operator", "--limits", "in_flight=5", "--json")
    changed = json.loads(done.stdout)["entry"]
    assert (changed["allow"], changed["role"], changed["limits"]) == (None, "operator", {"in_flight": 5, "sockets": 0})
    assert await list_models(folder, key) == [["small", "big"]]


def test_a_key_is_put_into_a_group_of_the_file_and_taken_out_of_it(folder: Path) -> None:
    with (folder / "gateway.yaml").open("a") as file:
        file.write("groups: [{name: research}]\n")
    key_in(run_keys(folder, "create", "alice", "-f", ".", "--group", "research"))
    assert "in research" in run_keys(folder, "list").stdout
    refused = run_keys(folder, "update", "alice", "--group", "reserch")
    assert (refused.returncode, "Did you mean 'research'?" in refused.stderr) == (2, True), refused.stderr
    assert run_keys(folder, "update", "alice", "--role", "keys").returncode == 0
    assert run_keys(folder, "update", "alice", "--no-group").returncode == 2, "its role is about a group"
    assert run_keys(folder, "update", "alice", "--no-group", "--no-role").returncode == 0
    assert "in research" not in run_keys(folder, "list").stdout


def test_an_update_leaves_comments_variables_and_the_rest_of_the_file(folder: Path) -> None:
    file = folder / "gateway.yaml"
    digest = f'"sha256:{"0" * 64}"'
    file.write_text(
        FILE
        + "keys:\n  # sales\n  - name: alice  # since May\n    hash: ${ALICE_HASH}  # in .env\n    limits:\n"
        + '      in_flight: 4  # tried out\n      sockets: "${SOCKETS}"\n    role: operator\n'
        + f"  - name: bob\n    hash: {digest}\n"
    )
    done = run_keys(folder, "update", "alice", "--no-role", "--limits", "in_flight=8", "--allow-models", "small")
    assert done.returncode == 0, done.stderr
    assert file.read_text() == (
        FILE
        + "keys:\n  # sales\n  - name: alice  # since May\n    hash: ${ALICE_HASH}  # in .env\n    limits:\n"
        + '      in_flight: 8  # tried out\n      sockets: "${SOCKETS}"\n    allow:\n      models: ["small"]\n'
        + f"  - name: bob\n    hash: {digest}\n"
    )
    assert run_keys(folder, "update", "alice", "--no-limits", "--allow-all").returncode == 0
    assert "limits" not in file.read_text()
    assert "allow" not in file.read_text()


def test_a_budget_is_set_and_removed_where_models_have_prices(folder: Path) -> None:
    file = folder / "gateway.yaml"
    file.write_text(FILE.replace("{provider: rehearsal}", "{provider: rehearsal, price: {input: 1, output: 2}}"))
    key_in(run_keys(folder, "create", "alice", "-f", ".", "--budget", "20/month", "--limits", "in_flight=4"))
    assert "in_flight 4, budget 20/month" in run_holodeck("keys", "list", cwd=folder, env={"COLUMNS": "200"}).stdout
    assert run_keys(folder, "update", "alice", "--budget", "0.5/day").returncode == 0
    (listed,) = json.loads(run_keys(folder, "list", "--json").stdout)
    assert listed["budget"] == {"amount": 0.5, "period": "day"}
    assert run_keys(folder, "update", "alice", "--no-budget").returncode == 0
    (listed,) = json.loads(run_keys(folder, "list", "--json").stdout)
    assert (listed["budget"], listed["limits"]) == (None, {"in_flight": 4})


def test_the_hash_of_a_variable_stays_valid_in_the_time_of_grace(folder: Path) -> None:
    file = folder / "gateway.yaml"
    file.write_text(FILE + "keys:\n  - name: alice  # of sales\n    hash: ${ALICE_HASH}  # in .env\n")
    key_in(run_keys(folder, "rotate", "alice", "--grace", "30m"))
    text = file.read_text()
    assert re.search(r'hash: "sha256:[0-9a-f]{64}"  # in \.env\n    old_hash: "\$\{ALICE_HASH\}"\n', text)
    assert "alice  # of sales" in text


def test_a_second_rotation_without_grace_leaves_no_old_key_and_nothing_else_changes(folder: Path) -> None:
    file = folder / "gateway.yaml"
    file.write_text(FILE + "keys: [{name: alice, hash: 'sha256:" + "0" * 64 + "', role: operator}]  # callers\n")
    key_in(run_keys(folder, "rotate", "alice", "--grace", "1h"))
    assert "old_hash_expires" in file.read_text()
    rotated = run_keys(folder, "rotate", "alice", "--json")
    digest = json.loads(rotated.stdout)["entry"]["hash"]
    assert file.read_text() == FILE + f'keys: [{{name: alice, hash: "{digest}", role: operator}}]  # callers\n'


def test_the_link_the_mode_and_the_byte_order_mark_of_the_file_stay(folder: Path) -> None:
    real, link = folder / "shared" / "team.yaml", folder / "gateway.yaml"
    real.parent.mkdir()
    real.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    real.chmod(0o640)
    link.unlink()
    link.symlink_to(real)
    key_in(run_keys(folder, "create", "alice", "-f", "gateway.yaml"))
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes().startswith(b"\xef\xbb\xbf" + FILE.encode() + b"keys:\n  - name: alice\n")
    assert list(real.parent.iterdir()) == [real]


def test_keys_that_are_created_at_once_are_all_in_the_file_and_no_name_twice(folder: Path) -> None:
    names = ["alice", "bob", "carol", "alice"]
    command = [sys.executable, "-m", "holodeck", "keys", "create", "-f", "gateway.yaml"]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    running = [
        subprocess.Popen([*command, name], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in names
    ]
    for process in running:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in running) == [0, 0, 0, 2]
    listed = json.loads(run_keys(folder, "list", "--json").stdout)
    assert sorted(each["name"] for each in listed) == ["alice", "bob", "carol"]


def test_a_form_that_cannot_be_edited_is_refused_and_the_file_stays(folder: Path) -> None:
    file = folder / "gateway.yaml"
    text = FILE + f'keys:\n  - &a {{name: alice, hash: "sha256:{"0" * 64}"}}\n  - *a\n'
    file.write_text(text)
    for args in (["rotate", "alice"], ["revoke", "alice"], ["update", "alice", "--role", "operator"]):
        done = run_keys(folder, *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert "by hand" in done.stderr
        assert file.read_text() == text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["revoke", "alcie"], "Did you mean 'alice'?"),
        (["rotate", "zoe"], "There are: alice."),
        (["rotate", "alice", "--grace", "soon"], "such as 24h"),
        (["create", "alice", "-f", "gateway.yaml"], "holodeck keys rotate alice"),
        (["create", "bob", "-f", "gateway.yaml", "--allow-tools", "github"], "'github.*'"),
        (["create", "bob", "-f", "gateway.yaml", "--allow-models", "!"], "denies nothing"),
        (["create", "bob", "-f", "gateway.yaml", "--budget", "5/month"], "'big', 'small' have none"),
        (["create", "bob", "-f", "agent.yaml"], "not the file of a gateway"),
        (["update", "zoe", "--role", "operator"], "There are: alice."),
        (["update", "alice"], "Say what to change"),
        (["update", "alice", "--allow-tools", "github"], "'github.*'"),
        (["update", "alice", "--limits", "in_flight=0"], "limits.in_flight"),
        (["update", "alice", "--limits", "speed=9"], "limits.speed"),
        (["update", "alice", "--limits", "fast"], "such as requests_per_minute=60"),
        (["update", "alice", "--budget", "5"], "such as 20/month"),
        (["update", "alice", "--budget", "5/year"], "budget.period"),
        (["update", "alice", "--budget", "5/month"], "'big', 'small' have none"),
        (["list", "-f", "missing.yaml"], "no such file"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_with_what_to_do_and_changes_nothing(folder: Path, args: list[str], words: str) -> None:
    (folder / "agent.yaml").write_text("name: helper\nmodel: {provider: rehearsal}\ninstructions: Help.\n")
    run_keys(folder, "create", "alice", "-f", ".")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = run_keys(folder, *args)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert not done.stdout
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_the_only_key_is_not_removed_because_everybody_would_be_the_operator(folder: Path) -> None:
    run_keys(folder, "create", "alice", "-f", ".")
    before = (folder / "gateway.yaml").read_bytes()
    done = run_keys(folder, "revoke", "alice")
    assert done.returncode == 2
    assert "holodeck keys rotate alice" in " ".join(done.stderr.split())
    assert (folder / "gateway.yaml").read_bytes() == before


def test_a_trusted_file_is_trusted_after_a_key_is_added_and_another_is_not(folder: Path) -> None:
    untrusting = {"HOLODECK_TRUST": ""}
    other = folder / "other" / "gateway.yaml"
    other.parent.mkdir()
    other.write_text(FILE)
    run_holodeck("trust", "--yes", "gateway.yaml", cwd=folder, env=untrusting)
    for file in ("gateway.yaml", "other/gateway.yaml"):
        done = run_holodeck("keys", "create", "alice", "-f", file, cwd=folder, env=untrusting)
        assert done.returncode == 0, done.stderr
    trusted = json.loads(run_holodeck("trust", "--json", "gateway.yaml", cwd=folder, env=untrusting).stdout)
    assert trusted["trusted"] is True
    assert run_holodeck("trust", "other/gateway.yaml", cwd=folder, env=untrusting).returncode == 2


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("allow", "key", "words"),
    [
        (
            "{models: [smal]}",
            "keys[0].allow.models[0]",
            "'smal' allows nothing: no model of this file matches 'smal' Did you mean 'small'?",
        ),
        ('{models: ["!bgi"]}', "keys[0].allow.models[0]", "denies nothing"),
        ("{agents: [helper]}", "keys[0].allow.agents[0]", "The file has no agent."),
        ('{servers: ["*", gihub]}', "keys[0].allow.servers[1]", "Did you mean 'github'?"),
        ('{tools: ["github.*", "!gihub.delete_*"]}', "keys[0].allow.tools[1]", "Did you mean 'github'?"),
    ],
)
def test_a_pattern_that_matches_nothing_of_the_file_is_a_warning(
    folder: Path, allow: str, key: str, words: str
) -> None:
    servers = "mcp_servers: [{name: github, description: d, url: 'https://mcp.example/github'}]\n"
    entry = f'keys:\n  - name: alice\n    hash: "sha256:{"0" * 64}"\n    allow: {allow}\n'
    (folder / "gateway.yaml").write_text(FILE + servers + entry)
    done = run_holodeck("validate", "gateway.yaml", cwd=folder)
    assert done.returncode == 0
    assert "(1 warning)" in done.stdout
    assert key in done.stderr
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("allow", "words"),
    [
        ("{tools: [github.*, !github.delete_*]}", "in quotes"),
        ("{models: [*]}", "in quotes"),
        ("{models: [*all]}", "in quotes"),
        ("{models: [!big]}", "in quotes"),
        ("{tools: [github]}", "'github.*'"),
        ("{tool: ['a.b']}", "tools"),
    ],
)
def test_a_wrong_scope_is_refused_with_what_to_write(folder: Path, allow: str, words: str) -> None:
    entry = f'keys:\n  - name: alice\n    hash: "sha256:{"0" * 64}"\n    allow: {allow}\n'
    (folder / "gateway.yaml").write_text(FILE + entry)
    done = run_holodeck("validate", "gateway.yaml", cwd=folder)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_an_old_hash_needs_a_time_with_its_zone_and_a_key_of_its_own(folder: Path) -> None:
    new, old = "0" * 64, "1" * 64
    for more, words in (
        (f'old_hash: "sha256:{old}"', "'old_hash_expires' is missing"),
        (f'old_hash: "sha256:{old}", old_hash_expires: "2030-01-31T12:00:00"', "keys[0].old_hash_expires"),
        (f'old_hash: "sha256:{new}", old_hash_expires: "2030-01-31T12:00:00Z"', "two callers have the same key"),
    ):
        (folder / "gateway.yaml").write_text(FILE + f'keys: [{{name: alice, hash: "sha256:{new}", {more}}}]\n')
        done = run_holodeck("validate", "gateway.yaml", cwd=folder)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())


@async_test(120)
async def test_the_key_for_prometheus_reads_the_metrics_and_nothing_of_others(folder: Path) -> None:
    alice = key_in(run_keys(folder, "create", "alice", "-f", "gateway.yaml"))
    scraper = key_in(run_keys(folder, "create", "prometheus", "-f", "gateway.yaml", "--role", "metrics"))
    async with run_gateway_process(folder / "gateway.yaml") as gateway:

        async def send(method: str, path: str, body: object = None, *, key: str = scraper) -> tuple[int, object]:
            status, answer, _ = await gateway.send(method, path, body, {"authorization": f"Bearer {key}"})
            return status, answer

        status, made = await send("POST", "/v1/responses", {"model": "small", "input": "Our secret"}, key=alice)
        assert status == 200
        assert isinstance(made, dict)
        assert (await send("GET", "/metrics"))[0] == 200
        for method, path, body, refusal in (
            ("GET", f"/v1/runs/{made['id']}/trace", None, 403),
            ("GET", "/v1/runs", None, 403),
            ("GET", f"/v1/responses/{made['id']}", None, 403),
            ("POST", "/v1/keys", {"name": "other", "role": "operator"}, 403),
            ("GET", "/v1/keys", None, 403),
            ("GET", "/v1/config", None, 403),
            ("POST", "/v1/responses", {"model": "small", "input": "Hi"}, 403),
        ):
            assert (await send(method, path, body))[0] == refusal, path


@async_test(120)
async def test_with_url_the_keys_are_those_of_a_gateway_that_runs(folder: Path) -> None:
    ops = key_in(run_keys(folder, "create", "ops", "-f", "gateway.yaml", "--role", "operator"))
    before = (folder / "gateway.yaml").read_bytes()
    async with run_gateway_process(folder / "gateway.yaml") as gateway:

        async def run_remote(*args: str, key: str = ops) -> subprocess.CompletedProcess[str]:
            words = ("keys", *args, "--url", gateway.url)
            return await asyncio.to_thread(run_holodeck, *words, cwd=folder, env={"HOLODECK_OPERATOR_KEY": key})

        async def find_status(key: str) -> int:
            return (await gateway.send("GET", "/v1/models", None, {"authorization": f"Bearer {key}"}))[0]

        key = key_in(await run_remote("create", "ci", "--allow-models", "small", "--limits", "in_flight=4"))
        assert await find_status(key) == 200
        done = await run_remote("update", "ci", "--allow-tools", "github.*", "--expires", "30d", "--pause")
        assert done.stdout == f"ci is changed in {gateway.url}.\n"
        assert done.stderr == "It is in force at every gateway within a second.\n"
        assert await find_status(key) == 401
        listed = {each["name"]: each for each in json.loads((await run_remote("list", "--json")).stdout)}
        assert listed["ci"]["allow"] == {"models": ["small"], "tools": ["github.*"]}, "the other patterns stay"
        assert (listed["ci"]["paused"], listed["ci"]["source"], listed["ops"]["source"]) == (True, "store", "file")
        table = (await run_remote("list")).stdout
        assert re.search(r"ci .* paused, expires 20\S+Z .* store", table), table
        assert (await run_remote("update", "ci", "--resume", "--no-expiry")).returncode == 0
        assert await find_status(key) == 200
        new = key_in(await run_remote("rotate", "ci", "--grace", "1h"))
        assert [await find_status(each) for each in (key, new)] == [200, 200]
        assert (await run_remote("revoke", "ci")).returncode == 0
        assert [await find_status(each) for each in (key, new)] == [401, 401]
        for args, words in (
            (("revoke", "cj"), "There is no key 'cj'."),
            (("rotate", "ops"), "The key 'ops' is in the gateway's file"),
            (("create", "ci", "--expires", "soon"), "expires"),
            (("list", "-f", "gateway.yaml"), "-f and --url exclude each other"),
        ):
            done = await run_remote(*args)
            assert done.returncode != 0
            assert words in " ".join(done.stderr.split())
            assert not done.stdout
        assert "Incorrect API key" in (await run_remote("list", key="hd-wrong")).stderr
        assert "HOLODECK_OPERATOR_KEY" in (await run_remote("list", key="")).stderr
    assert (folder / "gateway.yaml").read_bytes() == before
    assert "cannot be reached" in (await run_remote("list")).stderr


def test_a_key_of_a_file_expires_and_is_paused(folder: Path) -> None:
    run_keys(folder, "create", "alice", "-f", ".", "--expires", "30d")
    assert run_keys(folder, "update", "alice", "--pause").returncode == 0
    (listed,) = json.loads(run_keys(folder, "list", "--json").stdout)
    assert listed["paused"] is True
    expires = datetime.fromisoformat(listed["expires"])
    assert timedelta(days=29) < expires - datetime.now(UTC) < timedelta(days=31)
    assert "paused, expires 20" in run_keys(folder, "list").stdout
    assert run_keys(folder, "update", "alice", "--resume", "--no-expiry").returncode == 0
    assert "paused" not in (folder / "gateway.yaml").read_text()
    assert "expires" not in (folder / "gateway.yaml").read_text()
    done = run_keys(folder, "update", "alice", "--expires", "tomorrow")
    assert done.returncode == 2
    assert "expires" in done.stderr
