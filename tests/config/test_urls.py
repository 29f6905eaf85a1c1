"""A URL is judged by its host as parsed, never by how it begins."""

from __future__ import annotations

import pytest
from agent_folder import AgentFolder, agent_with_tool

from holodeck.lib.errors import ConfigError
from holodeck.runtime import read_gateway

REFUSED = [
    ("http", "http://example.com/mcp"),
    ("http", "http://localhost.evil.example/"),
    ("http", "http://127.0.0.1.evil/"),
    ("http", "http://localhost@evil.example/"),
    ("http", "http://localhost:pw@evil.example/"),
    ("http", "http://evil.example\\\\@localhost/"),
    ("http", "http://10.0.0.1/"),
    ("http", "http://0.0.0.0/"),
    ("http", "http://[::2]/"),
    ("http", "http://2130706433.example/"),
    *(
        ("http", f"http://{authority}/")
        for authority in (
            "[::1].evil.example",
            "[::1]evil.example:80",
            "[::1]]",
            "x[::1]",
            "[v1.a]",
            "[::1%25eth0]",
            "[::ffff:10.0.0.1]",
            "127.0.0.1.",
            "localhost..",
            "127.1",
            "0",
            "2130706433",
            "0177.0.0.1",
            "0x7f000001",
            "0x7f.1",
            "127\u30020\u30020\u30021",
            "localhost\u3002",
            "\u24dbocalhost",
            "localhost%2eevil.example",
            "localhost%00.evil.example",
            "[::1]:80@evil.example",
        )
    ),
    ("http", "https://[::1].evil.example/"),
    ("websocket", "wss://127.1/"),
    ("http", "ftp://localhost/"),
    ("http", "wss://localhost/"),
    ("sse", "wss://mcp.example.com/"),
    ("sse", "ws://localhost/"),
    ("http", "https://"),
    ("http", "https:///path"),
    ("http", "https:mcp.example.com"),
    ("http", "https://[::1"),
    ("http", "https://host:notaport/"),
    ("http", "https://ho st/"),
    ("http", "https://user:pass@mcp.example.com/"),
    ("http", "mcp.example.com"),
    ("http", "//mcp.example.com"),
    ("http", "javascript:alert(1)"),
    ("http", "file:///etc/passwd"),
    ("websocket", "https://mcp.example.com/"),
    ("websocket", "wss://"),
]
ACCEPTED = [
    ("http", "https://mcp.example.com/mcp"),
    ("http", "HTTPS://MCP.EXAMPLE.COM/"),
    ("http", "HTTP://LOCALHOST"),
    ("http", "http://localhost:8080/mcp?x=1"),
    ("http", "http://localhost./"),
    ("http", "http://127.0.0.1/"),
    ("http", "http://127.8.9.10:1/"),
    ("http", "http://[::1]:3000/mcp"),
    ("http", "http://[::ffff:127.0.0.1]/"),
    ("http", "https://[2001:db8::1]/mcp"),
    ("http", "https://[fe80::1%25eth0]/mcp"),
    ("http", "https://b\u00fccher.example/mcp"),
    ("http", "https://tools_v2.internal./mcp"),
    ("http", "https://1.example/mcp"),
    ("sse", "http://127.0.0.1:3000/sse"),
    ("websocket", "wss://mcp.example.com/ws"),
    ("websocket", "ws://localhost:9/ws"),
]


@pytest.mark.proves("D-12", "003:RULE-13", "003:RULE-15")
@pytest.mark.parametrize(("transport", "url"), REFUSED)
def test_a_url_that_leaves_the_machine_in_the_clear_or_misleads_is_refused(
    folder: AgentFolder, transport: str, url: str
) -> None:
    problems = folder.load_errors(agent_with_tool(f"transport: {transport}", f'url: "{url}"'))
    assert [problem.key for problem in problems] == ["tools[0].url"]


@pytest.mark.proves("D-12", "003:RULE-13", "003:RULE-15")
@pytest.mark.parametrize(("transport", "url"), ACCEPTED)
def test_https_anywhere_and_http_on_this_machine_are_accepted(folder: AgentFolder, transport: str, url: str) -> None:
    assert folder.load(agent_with_tool(f"transport: {transport}", f'url: "{url}"')).warnings == ()


@pytest.mark.proves("D-12")
def test_a_host_that_the_operator_lists_may_be_reached_by_http(folder: AgentFolder) -> None:
    lines = ("transport: http", "url: http://mcp.tools.svc:8080/mcp")
    assert folder.load_errors(agent_with_tool(*lines))
    assert folder.load(agent_with_tool(*lines, "allow_insecure_hosts: [MCP.tools.svc]"))
    assert folder.load_errors(agent_with_tool(*lines, "allow_insecure_hosts: [tools.svc]"))


@pytest.mark.proves("D-12")
def test_a_plain_websocket_off_this_machine_warns(folder: AgentFolder) -> None:
    loaded = folder.load(agent_with_tool("transport: websocket", "url: ws://mcp.example.com/"))
    assert [warning.key for warning in loaded.warnings] == ["tools[0].url"]


@pytest.mark.proves("D-12")
@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("", "headers: {Authorization: 'Bearer ${KEY}'}"),
        ("", "headers: {X-Tenant: '${KEY}'}"),
        ("", "auth: {type: bearer, token: '${KEY}'}"),
        ("?api_key=${KEY}", ""),
        ("?v=ghp_abcdefghijklmnop0123456789", ""),
    ],
)
def test_a_plain_websocket_off_this_machine_is_sent_no_credentials(folder: AgentFolder, query: str, line: str) -> None:
    lines = ("transport: websocket", *([line] if line else []))
    (problem,) = folder.load_errors(agent_with_tool(*lines, f"url: 'ws://mcp.example.com/mcp{query}'"), KEYS)
    assert (problem.key, "sent in the clear" in problem.message, "wss://" in problem.fix) == (
        "tools[0].url",
        True,
        True,
    )
    for url in (f"wss://mcp.example.com/mcp{query}", f"ws://127.0.0.1:9/mcp{query}"):
        assert folder.load(agent_with_tool(*lines, f"url: '{url}'"), KEYS)


SENT = "provider: openai_compatible, name: x, api_key: '${KEY}'"
FROM_ENVIRONMENT = "provider: openai, name: x"
KEYS = {"KEY": "k3y", "OPENAI_API_KEY": "k3y"}


@pytest.mark.parametrize(
    ("model", "host"),
    [
        (SENT, "models.internal:8000"),
        (SENT, "10.0.0.1"),
        (SENT, "localhost.evil.example"),
        (FROM_ENVIRONMENT, "api.openai.com"),
    ],
)
def test_a_models_key_is_not_sent_in_the_clear_off_this_machine(folder: AgentFolder, model: str, host: str) -> None:
    text = f"name: a\nmodel: {{{model}, endpoint: 'http://{host}/v1'}}\n"
    assert [problem.key for problem in folder.load_errors(text, KEYS)] == ["model.endpoint"]
    folder.write("gateway.yaml", f"models: [{{name: m, model: {{{model}, endpoint: 'http://{host}/v1'}}}}]\n")
    with pytest.raises(ConfigError, match=r"models\[0\].model.endpoint"):
        read_gateway(folder.path / "gateway.yaml", environ=KEYS, home=folder.home)


@pytest.mark.parametrize(
    "model",
    [
        f"{SENT}, endpoint: 'https://models.internal/v1'",
        f"{SENT}, endpoint: 'http://127.0.0.1:8000/v1'",
        f"{SENT}, endpoint: 'http://models.internal/v1', allow_insecure_hosts: [Models.Internal]",
        f"{FROM_ENVIRONMENT}, endpoint: 'http://models.internal/v1'",
        "provider: ollama, name: x, endpoint: 'http://gpu.internal:11434'",
    ],
)
def test_plain_http_to_a_model_is_accepted_on_loopback_for_listed_hosts_or_without_a_key(
    folder: AgentFolder, model: str
) -> None:
    folder.load(f"name: a\nmodel: {{{model}}}\n", KEYS)


def test_a_key_of_the_environment_that_an_endpoint_does_not_get_is_a_warning_with_the_way_to_send_it(
    folder: AgentFolder,
) -> None:
    model = f"{FROM_ENVIRONMENT}, endpoint: 'https://models.internal/v1'"
    [warning] = folder.load(f"name: a\nmodel: {{{model}}}\n", KEYS).warnings
    assert (warning.key, "api_key: ${OPENAI_API_KEY}" in warning.fix) == ("model.endpoint", True)
    named = f"name: a\nmodel: {{{model}, api_key: '${{OPENAI_API_KEY}}'}}\n"
    assert folder.load(named, KEYS).warnings == ()
    assert folder.load(f"name: a\nmodel: {{{model}}}\n", {}).warnings == ()


@pytest.mark.parametrize(
    ("otel", "keys"),
    [
        ("endpoint: 'http://collector:4318', headers: {x-key: '${KEY}'}", ["otel.endpoint"]),
        ("endpoint: 'http://collector:4318', headers: {x-key: '${KEY}'}, allow_insecure_hosts: [collector]", []),
        ("endpoint: 'http://127.0.0.1:4318', headers: {x-key: '${KEY}'}", []),
        ("endpoint: 'http://collector:4318'", []),
    ],
)
def test_a_collectors_headers_are_not_sent_in_the_clear(folder: AgentFolder, otel: str, keys: list[str]) -> None:
    folder.write("gateway.yaml", f"models: [{{name: m, model: {{}}}}]\notel: {{{otel}}}\n")
    problems: list[str] = []
    try:
        read_gateway(folder.path / "gateway.yaml", environ=KEYS, home=folder.home)
    except ConfigError as error:
        problems = [problem.key for problem in error.problems]
    assert problems == keys


@pytest.mark.parametrize(
    ("args", "warned"),
    [
        ("['-y', pkg, --api-key, '${MY}']", ["tools[0].args[3]"]),
        ("['-y', pkg, '--password=${MY}']", ["tools[0].args[2]"]),
        ("['-y', pkg, 'postgresql://me:${DB_PASSWORD}@db/x']", ["tools[0].args[2]"]),
        ("['-y', pkg, '${MY}', --root, '${MY}']", []),
    ],
)
def test_a_secret_among_arguments_warns_that_other_users_can_see_it(
    folder: AgentFolder, args: str, warned: list[str]
) -> None:
    loaded = folder.load(agent_with_tool("command: npx", f"args: {args}"), {"MY": "x", "DB_PASSWORD": "y"})
    assert [warning.key for warning in loaded.warnings] == warned
