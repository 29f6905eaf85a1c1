"""The environment of a server has what programs need and what its tool configures, and none of our keys."""

from __future__ import annotations

import pytest

from holodeck.lib.secret import Secret
from holodeck.tools.mcp.transports.stdio import child_environment, withheld_variables

OURS = {
    "PATH": "/usr/bin",
    "HOME": "/home/u",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TMPDIR": "/scratch",
    "XDG_CACHE_HOME": "/cache",
    "https_proxy": "http://proxy",
    "NO_PROXY": "localhost",
    "SSL_CERT_FILE": "/ca.pem",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
    "npm_config_registry": "https://npm.internal",
    "NPM_CONFIG_CACHE": "/npm",
    "UV_INDEX_URL": "https://pypi.internal",
    "DOCKER_HOST": "unix:///run/user/1/docker.sock",
    "SystemRoot": "C:\\Windows",
}
WITHHELD = {
    "ANTHROPIC_API_KEY": "k",
    "OPENAI_API_KEY": "k",
    "AWS_SECRET_ACCESS_KEY": "k",
    "GITHUB_TOKEN": "k",
    "NPM_TOKEN": "k",
    "npm_config_//registry.internal/:_authToken": "k",
    "UV_PUBLISH_TOKEN": "k",
    "UV_INDEX_INTERNAL_PASSWORD": "k",
    "SSH_AUTH_SOCK": "/agent",
    "NODE_OPTIONS": "--require=x",
    "LD_PRELOAD": "x.so",
    "PYTHONPATH": "/x",
    "VIRTUAL_ENV": "/venv",
    "PREFIX": "/x",
    "BASH_ENV": "/x",
}


def test_a_server_gets_what_programs_need_and_no_key_of_ours() -> None:
    assert child_environment({**OURS, **WITHHELD}, {}) == OURS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://me:pw@proxy:3128"),
        ("http_proxy", "me:pw@proxy:3128"),
        ("ALL_PROXY", "socks5h://me:p%40w@proxy"),
        ("UV_INDEX_URL", "https://__token__:secret@index.internal/simple"),
        ("UV_DEFAULT_INDEX", "https://TOKEN@index.internal/simple"),
        ("UV_INDEX", "https://index.example/simple internal=https://me:pw@index.internal/simple"),
        ("UV_FIND_LINKS", "https://files.internal/?access_token=x"),
        ("npm_config_registry", "https://me:pw@npm.internal/"),
        ("NPM_CONFIG_PROXY", "http://me:pw@proxy"),
        ("DOCKER_HOST", "ssh://me:pw@machine"),
    ],
)
def test_a_login_in_a_url_is_not_handed_on_unless_the_tool_names_the_variable(name: str, value: str) -> None:
    assert child_environment({"PATH": "/usr/bin", name: value}, {}) == {"PATH": "/usr/bin"}
    assert withheld_variables({"PATH": "/usr/bin", name: value}, {}) == [name]
    assert child_environment({name: value}, {name: Secret(value)}) == {name: value}
    assert withheld_variables({name: value}, {name: Secret(value)}) == []


def test_a_url_without_a_login_is_handed_on() -> None:
    ours = {
        "DOCKER_HOST": "ssh://me@machine",
        "npm_config_@scope:registry": "https://npm.internal/@scope/",
        "UV_INDEX": "https://a.internal/simple b=https://b.internal/@x",
        "NO_PROXY": "localhost,::1",
    }
    assert child_environment(ours, {}) == ours


def test_the_variables_of_the_tool_are_added_and_win() -> None:
    child = child_environment(
        {"PATH": "/usr/bin", "TZ": "UTC"}, {"TZ": Secret("Asia/Tokyo"), "GITHUB_TOKEN": Secret("t")}
    )
    assert child == {"PATH": "/usr/bin", "TZ": "Asia/Tokyo", "GITHUB_TOKEN": "t"}


def test_an_exported_function_of_a_shell_is_not_passed_on() -> None:
    assert child_environment({"LANG": "() { evil; }", "TERM": "xterm"}, {}) == {"TERM": "xterm"}


def test_our_own_environment_is_left_as_it_was() -> None:
    ours = dict(OURS)
    child_environment(ours, {"HOME": Secret("/elsewhere")})
    assert ours == OURS
