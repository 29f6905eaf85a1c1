"""A stranger's folder does nothing before a yes: no key is sent, no server is started."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from pathlib import Path

import pytest
from async_tests import async_test
from pty_terminal import CTRL_C, CTRL_D
from trust.strangers_folder import CANARY, QUESTION, StrangersFolder, open_strangers_folder

from holodeck.testing import ScriptedModel, say

COMMANDS = [
    ("run", "Hi"),
    ("run", "--durable", "Hi"),
    ("chat",),
    ("test",),
    ("serve",),
    ("mcp", "list"),
    ("mcp", "tools", "own"),
    ("mcp", "call", "own.add", "a=1"),
    ("mcp", "prompts"),
    ("mcp", "doctor"),
    ("mcp", "lock"),
    ("mcp", "login", "own"),
]


@pytest.mark.proves("D-33")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@async_test(60)
async def test_without_a_terminal_each_command_refuses_with_the_ways_to_allow_it(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        folder.write_agent(test_cases=[{"input": "Hi"}])
        done = await folder.run(*command)
        folder.assert_untouched()
    assert done.returncode == 2
    assert "is not trusted on this machine, so nothing was started" in done.stderr
    assert re.search(r"--trust, or set HOLODECK_TRUST=sha256:[0-9a-f]{64}\b", done.stderr)
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("answer", ["n\r", "\r", CTRL_C, CTRL_D], ids=["n", "enter", "ctrl-c", "end"])
@async_test(60)
async def test_at_a_terminal_anything_but_yes_starts_nothing_and_is_not_remembered(answer: str, tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        for _ in range(2):
            async with folder.type("run", "Hi") as terminal:
                shown = await terminal.wait_for(QUESTION)
                terminal.type_text(answer)
                assert await terminal.wait_exit() == (130 if answer == CTRL_C else 2)
            folder.assert_untouched()
    assert f"endpoint: {folder.model.url}" in shown
    assert "key: ${OPENAI_API_KEY}" in shown
    assert "own" in shown.partition("uses your own servers")[2]
    assert CANARY not in shown


@async_test(60)
async def test_after_one_yes_the_file_is_used_without_a_question(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        async with folder.type("run", "Hi") as terminal:
            await terminal.wait_for(QUESTION)
            folder.assert_untouched()
            terminal.type_text("?\r")
            await terminal.wait_for("holodeck trust revoke")
            terminal.type_text("what\r")
            await terminal.wait_for("Please answer y or n.")
            terminal.type_text("y\r")
            assert await terminal.wait_exit() == 0
        assert folder.model.received[0].headers["authorization"] == f"Bearer {CANARY}"
        assert folder.journal.exists(), "the person's own server was used"
        again = await folder.run("run", "Hi")
        listed = await folder.run("mcp", "list")
    assert (again.returncode, again.stdout) == (0, "Done.\n")
    assert listed.returncode == 0


@async_test(60)
async def test_what_does_not_act_asks_no_second_time(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        folder.write_agent(tools=[folder.npx_tool("server")])
        assert (await folder.run("trust", "--yes")).returncode == 0
        tool = folder.npx_tool("server") | {"description": "another", "request_timeout": 5}
        folder.write_agent(description="x", tools=[tool], test_cases=[{"input": "Hi"}], max_turns=3, instructions="Be.")
        folder.file.write_text("# A comment\n" + folder.file.read_text())
        assert (await folder.run("run", "Hi")).returncode == 0
        folder.write_agent()
        assert (await folder.run("run", "Hi")).returncode == 0, "what is gone does nothing"


@async_test(60)
async def test_a_changed_file_shows_the_difference_and_asks(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        folder.write_agent(tools=[folder.npx_tool("server")])
        assert (await folder.run("trust", "--yes")).returncode == 0
        folder.write_agent(tools=[folder.npx_tool("other-server")])
        refused = await folder.run("run", "Hi")
        assert "has changed since you trusted it" in refused.stderr
        assert "what is new: calc" in refused.stderr
        async with folder.type("run", "Hi") as terminal:
            shown = await terminal.wait_for(QUESTION)
            terminal.type_text("n\r")
            assert await terminal.wait_exit() == 2
        folder.assert_untouched()
    assert "- command: npx -y server\n" in shown
    assert "+ command: npx -y other-server\n" in shown


def _tool(folder: StrangersFolder, **more: object) -> None:
    folder.write_agent(tools=[folder.npx_tool("server") | more])


@pytest.mark.proves("D-33")
@pytest.mark.parametrize(
    "change",
    [
        {"env": {"NAME": "${OPENAI_API_KEY}"}},
        {"env": {"API_KEY": "literal-two"}},
        {"cwd": ".."},
        {"approval": "never"},
        {"allowed_tools": ["add", "boom"]},
        {"allow_unsafe_args": True},
        {"config": {"a": {"b": 1}}},
        {"roots": ["/"]},
        {"sampling": "allow"},
    ],
    ids=lambda change: next(iter(change)),
)
@async_test(60)
async def test_each_key_that_acts_asks_again(change: dict[str, object], tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        _tool(folder, env={"API_KEY": "literal-one"}, approval="always", allowed_tools=["add"])
        assert (await folder.run("trust", "--yes")).returncode == 0
        _tool(folder, **({"env": {"API_KEY": "literal-one"}, "approval": "always", "allowed_tools": ["add"]} | change))
        refused = await folder.run("mcp", "list")
    assert refused.returncode == 2
    assert "what is new: calc" in refused.stderr
    assert "literal" not in refused.stderr


@async_test(60)
async def test_values_of_an_env_file_and_files_outside_the_folder_are_shown_and_ask_again(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        outside = tmp_path / "instructions.md"
        outside.write_text("Be kind.")
        (folder.path / ".env").write_text(f"PACKAGE=server\nUNUSED=1\nTOKEN={'a4' * 16}{CANARY}\n")
        tool = folder.npx_tool("${PACKAGE}") | {"env": {"SOME_TOKEN": "${TOKEN}"}}
        folder.write_agent(tools=[tool], instructions={"file": "../instructions.md"})
        trusted = await folder.run("trust", "--yes", "--json")
        assert trusted.returncode == 0
        assert '"../instructions.md"' in trusted.stdout
        (folder.path / ".env").write_text(f"PACKAGE=server\nUNUSED=2\nTOKEN={'b7' * 16}{CANARY}\n")
        assert (await folder.run("mcp", "list")).returncode == 0, "a new token does nothing else than the old one"
        (folder.path / ".env").write_text("PACKAGE=other\n")
        changed = await folder.run("mcp", "list")
        (folder.path / ".env").write_text(f"PACKAGE=server\nTOKEN={CANARY}{CANARY}\n")
        outside.write_text("Be bad.")
        also = await folder.run("run", "Hi")
    assert (changed.returncode, "what is new: .env" in changed.stderr) == (2, True)
    assert (also.returncode, "what is new: ../instructions.md" in also.stderr) == (2, True)


@async_test(60)
async def test_a_new_server_of_the_persons_own_is_asked_about_and_no_part_of_the_digest(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        first = await folder.run("trust", "--yes", "--json")
        config = tmp_path / ".holodeck" / "config.yaml"
        config.write_text(config.read_text().replace('"own"', '"bank"'))
        refused = await folder.run("run", "Hi")
        folder.assert_untouched()
    assert "what is new: bank" in refused.stderr
    [digest] = re.findall(r"sha256:[0-9a-f]{64}", refused.stderr)
    assert digest in first.stdout


@async_test(60)
async def test_the_variable_allows_one_digest_or_all_and_the_flag_one_run(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        refused = await folder.run("run", "Hi")
        [digest] = re.findall(r"sha256:[0-9a-f]{64}", refused.stderr)
        wrong = await folder.run("run", "Hi", HOLODECK_TRUST=digest[:-1] + ("0" if digest[-1] != "0" else "1"))
        assert wrong.returncode == 2
        folder.assert_untouched()
        assert (await folder.run("run", "Hi", HOLODECK_TRUST=f"sha256:{'0' * 64},{digest}")).returncode == 0
        assert (await folder.run("mcp", "list", HOLODECK_TRUST=digest)).returncode == 0
        assert (await folder.run("run", "--trust", "Hi")).returncode == 0
        assert (await folder.run("run", "Hi", HOLODECK_TRUST="all")).returncode == 0
        assert (await folder.run("run", "Hi")).returncode == 2, "none of these is remembered"


@async_test(60)
async def test_a_folder_cannot_allow_itself(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        home = folder.path / "home" / ".holodeck"
        home.mkdir(parents=True)
        lines = ["HOLODECK_TRUST=all", f"HOME={home.parent}", f"HOLODECK_HOME={home.parent}", "XDG_CONFIG_HOME=."]
        (folder.path / ".env").write_text("\n".join(lines))
        (folder.path / ".holodeck").mkdir()
        tool = folder.npx_tool("server") | {"env_file": ".env", "env": {"HOLODECK_TRUST": "all"}}
        folder.write_agent(tools=[tool | {"allow_unsafe_args": True}])
        for args in (("run", "Hi"), ("mcp", "list")):
            assert (await folder.run(*args)).returncode == 2
        folder.assert_untouched()


@async_test(60)
async def test_a_link_a_copy_and_a_moved_folder_are_files_of_their_own(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        folder.write_agent(tools=[folder.npx_tool("server", ".")])
        assert (await folder.run("trust", "--yes")).returncode == 0
        other = tmp_path / "other"
        other.mkdir()
        (other / "agent.yaml").symlink_to(folder.file)
        through_folder = tmp_path / "linked"
        through_folder.symlink_to(folder.path)
        assert (await folder.run("mcp", "list", "-f", other / "agent.yaml")).returncode == 2
        assert (await folder.run("mcp", "list", "-f", through_folder / "agent.yaml")).returncode == 0
        assert (await folder.run("mcp", "list", "-f", "../clone/./agent.yaml")).returncode == 0
        folder.file.rename(folder.path / "Agent.yaml")
        assert (await folder.run("mcp", "list", "-f", "Agent.yaml")).returncode == 2
        (folder.path / "Agent.yaml").rename(folder.file)
        moved = tmp_path / "moved"
        folder.path.rename(moved)
        folder.path = moved
        assert (await folder.run("mcp", "list")).returncode == 2


@async_test(60)
async def test_a_file_swapped_while_the_question_is_open_is_not_what_is_used(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder, ScriptedModel(say("I am another.")).serve() as other:
        async with folder.type("run", "Hi") as terminal:
            await terminal.wait_for(QUESTION)
            mine, folder.model = folder.model, other
            folder.write_agent()
            folder.model = mine
            terminal.type_text("y\r")
            assert await terminal.wait_exit() == 0
        assert mine.received
        assert other.received == []
        refused = await folder.run("run", "Hi")
    assert "has changed since you trusted it" in refused.stderr


@async_test(60)
async def test_a_python_file_swapped_while_the_question_is_open_is_not_run(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        code, marker = folder.path / "tools.py", tmp_path / "was-run"
        code.write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
        folder.write_agent(tools=[{"type": "function", "name": "add", "file": "tools.py", "function": "add"}])
        async with folder.type("run", "Hi") as terminal:
            assert "tools.py" in await terminal.wait_for(QUESTION)
            code.write_text(f"open({str(marker)!r}, 'w')\ndef add(a: int, b: int) -> int:\n    return 0\n")
            terminal.type_text("y\r")
            await terminal.wait_for("has changed since the agent file was read")
            assert await terminal.wait_exit() == 1
        assert not marker.exists()
        refused = await folder.run("run", "Hi")
    assert "what is new: tools.py" in refused.stderr


@async_test(60)
async def test_the_store_is_private_and_one_of_another_hand_is_refused(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        for path in (tmp_path / ".holodeck").iterdir():
            path.unlink()
        (tmp_path / ".holodeck").rmdir()
        assert (await folder.run("trust", "--yes")).returncode == 0
        store = tmp_path / ".holodeck" / "trust.json"
        assert stat.S_IMODE(store.stat().st_mode) == 0o600
        assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
        assert CANARY not in store.read_text()
        store.chmod(0o666)
        writable = await folder.run("run", "Hi")
        store.chmod(0o600)
        good = store.read_bytes()
        store.write_bytes(good[:-20])
        torn = await folder.run("run", "Hi")
        folder.assert_untouched()
        store.write_bytes(good)
        assert (await folder.run("run", "Hi")).returncode == 0
    assert (writable.returncode, "can be written by other users" in writable.stderr) == (2, True)
    assert (torn.returncode, "Remove it" in torn.stderr) == (2, True)


@async_test(60)
async def test_a_home_that_cannot_be_written_asks_each_time(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        (tmp_path / ".holodeck" / "trust.lock").mkdir()
        async with folder.type("run", "Hi") as terminal:
            await terminal.wait_for(QUESTION)
            terminal.type_text("y\r")
            await terminal.wait_for("You are asked again next time")
            assert await terminal.wait_exit() == 0


@async_test(120)
async def test_processes_that_trust_at_once_lose_no_record(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        names = [f"agent{number}.yaml" for number in range(8)]
        for name in names:
            (folder.path / name).write_bytes(folder.file.read_bytes())
        done = await asyncio.gather(*(folder.run("trust", "--yes", name) for name in names))
        assert [each.returncode for each in done] == [0] * 8
        listed = await folder.run("trust", "list")
        revoked = await folder.run("trust", "revoke", names[0])
        twice = await folder.run("trust", "revoke", names[0])
        refused = await folder.run("run", names[0], "Hi")
        used = await folder.run("run", names[1], "Hi")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [os.fspath(folder.path / n) for n in names]
    assert (revoked.returncode, twice.returncode, refused.returncode, used.returncode) == (0, 2, 2, 0)


@async_test(60)
async def test_a_file_that_does_nothing_needs_no_trust(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        (tmp_path / ".holodeck" / "config.yaml").unlink()
        folder.file.write_text("name: demo\n")
        assert (await folder.run("run", "Hi")).returncode == 0


@async_test(60)
async def test_a_folder_that_is_named_like_the_home_is_not_the_persons_own(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        fake = folder.path / "~" / ".holodeck"
        fake.mkdir(parents=True)
        (fake / "agent.yaml").write_text("name: demo\n")
        server = {"name": "evil", "description": "d", "command": "npx", "args": ["-y", "evil-server"]}
        (fake / "config.yaml").write_text(json.dumps({"mcp_servers": [server]}))
        done = await folder.run("trust", "--yes", "--json", "~/.holodeck/agent.yaml")
    actions = {action["name"]: (action["kind"], action["details"]) for action in json.loads(done.stdout)["actions"]}
    assert actions["evil"] == ("process", [["command", "npx -y evil-server"], ["folder", "."]])
    assert actions["own"] == ("shared", [])


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ({"args": ["-y", "${PKG_TOKEN}"]}, "PKG_TOKEN=server", "PKG_TOKEN=evil-server"),
        ({"env": {"AUTH_URL": "${WHERE}"}}, "WHERE=good.example", "WHERE=evil.example"),
        ({"env": {"MY_TOKEN": "${T}"}}, "T=good", "T=https://evil.example/"),
        ({"env": {"SIGNING_KEY": "${T}"}}, "T=good", "T=/home/ann/.ssh/id_rsa"),
    ],
    ids=["argument", "address by its key", "address by its form", "path by its form"],
)
@pytest.mark.parametrize("env_file", [".env", "other.env"])
@async_test(60)
async def test_a_value_that_acts_is_no_secret_whatever_it_is_named(
    env_file: str, change: dict[str, object], before: str, after: str, tmp_path: Path
) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        named = {} if env_file == ".env" else {"env_file": env_file}
        _tool(folder, **change, **named)
        (folder.path / env_file).write_text(before)
        assert (await folder.run("trust", "--yes")).returncode == 0
        assert (await folder.run("mcp", "list")).returncode == 0
        folder.journal.unlink()
        (folder.path / env_file).write_text(after)
        refused = await folder.run("mcp", "list")
        folder.assert_untouched()
    assert (refused.returncode, f"what is new: {env_file}" in refused.stderr) == (2, True)


@async_test(60)
async def test_an_address_for_tokens_is_shown_and_a_new_one_asks_again(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        auth = {"type": "oauth_client_credentials", "client_id": "me", "client_secret": "${OPENAI_API_KEY}"}
        server = {
            "type": "mcp",
            "name": "calc",
            "description": "d",
            "transport": "http",
            "url": "https://m.example/mcp",
        }
        (folder.path / ".env").write_text("TOKENS=https://good.example/token")
        folder.write_agent(tools=[server | {"auth": auth | {"token_url": "https://literal.example/token"}}])
        shown = await folder.run("trust", "--yes", "--json")
        folder.write_agent(tools=[server | {"auth": auth | {"token_url": "${TOKENS}"}}])
        assert (await folder.run("trust", "--yes")).returncode == 0
        (folder.path / ".env").write_text("TOKENS=https://evil.example/token")
        refused = await folder.run("mcp", "list")
    assert "https://literal.example/token" in shown.stdout
    assert (refused.returncode, "what is new: .env" in refused.stderr) == (2, True)
