"""`holodeck serve --host --port --open`: where it listens, and what it opens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import HOLODECK, run_gateway_process, start_gateway, wait_logged, write_gateway_file

from holodeck.gateway.auth.callers import hash_key

SECONDS = 90.0
NO_MODEL = "http://127.0.0.1:9/v1"
KEYS = [{"name": "team", "hash": hash_key("hd-team")}]


async def _refuse(file: Path, *options: str) -> tuple[int, str]:
    """The exit code and the words of a gateway that does not start with these options."""
    process = await start_gateway(file, *options)
    _, words = await process.communicate()
    assert process.returncode is not None
    return process.returncode, " ".join(words.decode().split())


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@async_test(SECONDS)
async def test_options_come_before_the_variables_and_the_file(tmp_path: Path) -> None:
    port = _free_port()
    file = write_gateway_file(tmp_path, NO_MODEL, listen={"host": "127.0.0.9", "port": 1})
    environ = {"HOLODECK_LISTEN__HOST": "127.0.0.8", "HOLODECK_LISTEN__PORT": "2"}
    async with run_gateway_process(file, "--host=127.0.0.1", f"--port={port}", environ=environ) as served:
        assert served.url == f"http://127.0.0.1:{port}"
        assert (await served.send("GET", "/healthz"))[0] == 200


@async_test(SECONDS)
async def test_the_address_of_the_console_is_printed(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NO_MODEL, keys=KEYS)
    async with run_gateway_process(file, "--host=0.0.0.0", "--port=0") as served:
        line = await wait_logged(served, "Console: ")
        port = served.url.rpartition(":")[2]
        assert line == f"Console: http://127.0.0.1:{port}/\n", "one that a browser on this machine can open"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ["--host=0.0.0.0"],
            2,
            "--host listen.host ConfigError: without keys the gateway listens on loopback only, not on '0.0.0.0'",
        ),
        (["--port=70000"], 2, "Invalid value for '--port': 70000 is not in the range 0<=x<=65535."),
        (["--host=192.0.2.1", "--port=0"], 2, "without keys the gateway listens on loopback only, not on '192.0.2.1'"),
    ],
)
@async_test(SECONDS)
async def test_a_wrong_address_is_refused_by_the_rules_of_the_file(
    tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    found, said = await _refuse(write_gateway_file(tmp_path, NO_MODEL), *options)
    assert found == code
    assert words in said
    assert "HOLODECK_LISTEN" not in said


@async_test(SECONDS)
async def test_an_address_that_this_machine_does_not_have_is_a_clear_error(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NO_MODEL, keys=KEYS)
    code, said = await _refuse(file, "--host=192.0.2.1", "--port=0")
    assert code == 2
    assert "Cannot listen on 192.0.2.1:0" in said


@async_test(SECONDS)
async def test_open_opens_the_address_in_the_browser(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "opened $1" >> {opened}\necho "opened $1" >&2\n')
    browser.chmod(0o755)
    file = write_gateway_file(tmp_path, NO_MODEL)
    environ = {"BROWSER": str(browser)}
    async with run_gateway_process(file, "--open", program=HOLODECK, environ=environ) as served:
        assert await wait_logged(served, "opened ") == f"opened {served.url}/\n"
        assert (await served.send("GET", "/healthz"))[0] == 200
    assert opened.read_text() == f"opened {served.url}/\n"


@async_test(SECONDS)
async def test_without_a_browser_it_says_so_and_serves(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    environ = {"PATH": str(empty), "BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    file = write_gateway_file(tmp_path, NO_MODEL)
    async with run_gateway_process(file, "--open", program=HOLODECK, environ=environ) as served:
        line = await wait_logged(served, "There is no browser here")
        assert f"{served.url}/" in line
        assert (await served.send("GET", "/healthz"))[0] == 200
