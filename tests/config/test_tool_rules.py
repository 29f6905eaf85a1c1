"""The contract of an MCP tool: its examples load unchanged, and each of its errors has its text."""

from __future__ import annotations

import jsonschema_rs
import pytest
import yaml
from agent_folder import AgentFolder, agent_with_tool

from holodeck.config.json_schema import agent_schema
from holodeck.lib.errors import ConfigError, MCPConfigError, MissingTransportFieldError, ValidationError
from holodeck.models.tool import CommandType, MCPTool, TransportType

EXAMPLES = {
    "filesystem": """
tools:
  - name: files
    description: "Read and write files in workspace"
    type: mcp
    server: "@modelcontextprotocol/server-filesystem"
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem"]
    config:
      allowed_directories:
        - "${workspaceFolder}/data"
        - "${workspaceFolder}/output"
""",
    "github": """
tools:
  - name: github
    description: "GitHub repository operations"
    type: mcp
    server: "@modelcontextprotocol/server-github"
    command: npx
    args: ["-y", "@modelcontextprotocol/server-github"]
    env:
      GITHUB_TOKEN: "${GITHUB_TOKEN}"
    config:
      repositories:
        - "owner/repo"
""",
    "database": """
tools:
  - name: postgres
    description: "PostgreSQL database queries"
    type: mcp
    server: "@modelcontextprotocol/server-postgres"
    command: npx
    args: ["-y", "@modelcontextprotocol/server-postgres"]
    env:
      DATABASE_URL: "${DATABASE_URL}"
""",
    "uvx": """
tools:
  - name: python_mcp
    description: "Python MCP server via uvx"
    type: mcp
    server: "mcp-server-fetch"
    command: uvx
    args: ["mcp-server-fetch"]
    env:
      CUSTOM_CONFIG: "${CUSTOM_CONFIG}"
""",
    "docker": """
tools:
  - name: docker_mcp
    description: "Containerized MCP server"
    type: mcp
    server: "mcp-server-custom"
    command: docker
    args: ["run", "--rm", "-i", "mcp-server:latest"]
    env:
      API_KEY: "${API_KEY}"
""",
    "cloud sse": """
tools:
  - name: cloud_api
    description: "Cloud AI service via MCP"
    type: mcp
    server: "cloud-ai-mcp"
    transport: sse
    url: "https://api.example.com/mcp/sse"
    headers:
      Authorization: "Bearer ${CLOUD_API_KEY}"
      X-Request-ID: "holodeck-agent"
    timeout: 10
    sse_read_timeout: 300
    request_timeout: 120
""",
    "stdio, all fields": """
tools:
  - name: filesystem
    description: "File system operations via MCP"
    type: mcp
    server: "@modelcontextprotocol/server-filesystem"
    transport: stdio                # Optional, stdio is default
    command: npx                    # Required: npx | uvx | docker
    args:                           # Optional
      - "-y"
      - "@modelcontextprotocol/server-filesystem"
    env:                            # Optional
      ALLOWED_PATHS: "/workspace"
    envFile: ".env"                 # Optional
    encoding: "utf-8"               # Optional
    config:                         # Optional, passed to server init
      allowed_directories:
        - "/workspace/data"
    request_timeout: 60             # Optional, default 60
""",
    "sse, all fields": """
tools:
  - name: cloud_mcp
    description: "Cloud-hosted MCP server"
    type: mcp
    server: "cloud-mcp-service"
    transport: sse                  # Required for SSE
    url: "https://mcp.example.com/sse"  # Required
    headers:                        # Optional
      Authorization: "Bearer ${API_TOKEN}"
      X-Custom-Header: "value"
    timeout: 30                     # Optional, connection timeout
    sse_read_timeout: 120           # Optional, read timeout
    request_timeout: 60             # Optional
""",
    "websocket": """
tools:
  - name: realtime_mcp
    description: "Real-time MCP server"
    type: mcp
    server: "realtime-service"
    transport: websocket            # Required for WebSocket
    url: "wss://mcp.example.com/ws" # Required
    request_timeout: 60             # Optional
""",
    "http, all fields": """
tools:
  - name: http_mcp
    description: "HTTP MCP server with streaming"
    type: mcp
    server: "http-mcp-service"
    transport: http                 # Required for HTTP
    url: "https://mcp.example.com/stream"  # Required
    headers:                        # Optional
      Authorization: "Bearer ${TOKEN}"
    timeout: 30                     # Optional
    sse_read_timeout: 120           # Optional
    terminate_on_close: true        # Optional
    request_timeout: 60             # Optional
""",
    "model: stdio": """
tools:
  - name: filesystem
    type: mcp
    server: "@modelcontextprotocol/server-filesystem"
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem"]
    config:
      allowed_directories: ["/workspace/data"]
""",
    "model: sse": """
tools:
  - name: remote_api
    type: mcp
    server: "my-mcp-server"
    transport: sse
    url: "https://mcp.example.com/sse"
    headers:
      Authorization: "Bearer ${API_TOKEN}"
    timeout: 30
    sse_read_timeout: 120
""",
    "model: websocket": """
tools:
  - name: realtime
    type: mcp
    server: "realtime-server"
    transport: websocket
    url: "wss://mcp.example.com/ws"
""",
    "model: http": """
tools:
  - name: streaming_api
    type: mcp
    server: "streaming-server"
    transport: http
    url: "https://mcp.example.com/stream"
    terminate_on_close: true
""",
}
VARIABLES = dict.fromkeys(
    ("GITHUB_TOKEN", "DATABASE_URL", "CUSTOM_CONFIG", "API_KEY", "CLOUD_API_KEY", "API_TOKEN", "TOKEN"), "v4lue"
)


@pytest.mark.proves("000:FR-001", "000:FR-026", "000:SC-004", "002:EX-1", "002:EX-2", "002:EX-3", "002:EX-4")
@pytest.mark.proves("003:EX-1", "003:EX-2", "003:EX-3", "003:EX-4", "003:EX-5", "003:EX-6")
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_every_example_of_the_contract_loads_as_written(folder: AgentFolder, example: str) -> None:
    folder.write(".env", "A=1\n")
    loaded = folder.load("name: demo\n" + example, VARIABLES)
    assert len(loaded.agent.tools) == 1


ERRORS = [
    (("command: npm",), MCPConfigError, "MCPConfigError: Invalid command 'npm'. Supported commands: npx, uvx, docker"),
    (("server: x",), MissingTransportFieldError, "MCPConfigError: 'command' is required for stdio transport"),
    (("transport: sse",), MissingTransportFieldError, "MCPConfigError: 'url' is required for sse transport"),
    (("transport: http",), MissingTransportFieldError, "MCPConfigError: 'url' is required for http transport"),
    (
        ("transport: websocket",),
        MissingTransportFieldError,
        "MCPConfigError: 'url' is required for websocket transport",
    ),
    (
        ("transport: sse", "url: https://${VAR_NAME}/"),
        ConfigError,
        "ConfigError: Environment variable 'VAR_NAME' not found",
    ),
    (
        ("transport: http", "url: http://example.com/mcp"),
        MCPConfigError,
        "MCPConfigError: 'url' must use https:// (or http:// for localhost)",
    ),
    (
        ("command: npx", 'args: ["-y", "x"]', 'server: ""'),
        ValidationError,
        "ValidationError: 'server' must be a non-empty identifier",
    ),
]


@pytest.mark.proves("003:ERR-1", "003:ERR-2", "003:ERR-3", "003:ERR-4", "003:ERR-5", "003:ERR-6")
@pytest.mark.proves("002:ERR-1", "002:ERR-2", "002:ERR-3", "002:RULE-3", "002:RULE-5", "002:RULE-6")
@pytest.mark.proves("003:RULE-4", "003:RULE-12")
@pytest.mark.parametrize(("lines", "kind", "text"), ERRORS, ids=[text for _, _, text in ERRORS])
def test_each_error_of_the_contract_has_its_text_and_class(
    folder: AgentFolder, lines: tuple[str, ...], kind: type[ConfigError], text: str
) -> None:
    error = folder.load_error(agent_with_tool(*lines))
    assert type(error) is kind
    assert text in str(error)
    assert "agent.yaml:" in str(error)


@pytest.mark.proves("000:FR-012", "001:DEC-3", "002:ENT-1", "002:ENT-2", "002:ENT-3", "D-7")
def test_a_tool_has_the_defaults_of_the_contract(folder: AgentFolder) -> None:
    loaded = folder.load(agent_with_tool("command: npx", 'args: ["-y", "some-server"]'))
    (server,) = loaded.agent.tools
    assert isinstance(server, MCPTool)
    assert server.transport is TransportType.STDIO
    assert server.command is CommandType.NPX
    assert (server.request_timeout, server.load_tools, server.load_prompts) == (60, True, True)
    assert server.encoding == "utf-8"


@pytest.mark.proves("003:LEGACY-1", "003:LEGACY-2", "003:LEGACY-3", "002:MIG-1", "002:MIG-2", "D-8")
def test_a_bare_npm_name_is_started_with_npx_and_a_warning(folder: AgentFolder) -> None:
    text = agent_with_tool('server: "@modelcontextprotocol/server-memory"', "config: {key: value}")
    with pytest.warns(DeprecationWarning, match="command: npx"):
        loaded = folder.load(text)
    (server,) = loaded.agent.tools
    assert isinstance(server, MCPTool)
    assert server.command is CommandType.NPX
    assert any("deprecated" in warning.message for warning in loaded.warnings)


@pytest.mark.proves("D-8", "002:RULE-5")
@pytest.mark.parametrize("server", ["some-package", "./dir", "@scope", "@scope/a/b", "https://x.example/pkg.tgz"])
def test_a_server_that_is_no_scoped_npm_name_needs_its_command(folder: AgentFolder, server: str) -> None:
    (problem,) = folder.load_errors(agent_with_tool(f"server: {server!r}"))
    assert problem.message == "'command' is required for stdio transport"


FOREIGN = [
    ("headers: {A: b}", "command: npx"),
    ("url: https://x.example", "command: npx"),
    ("timeout: 5", "command: npx"),
    ("sse_read_timeout: 5", "command: npx"),
    ("terminate_on_close: true", "command: npx"),
    ("auth: {type: bearer, token: x}", "command: npx"),
    ("caller_authorization: true", "command: npx"),
    ("command: npx", "transport: http"),
    ("args: [x]", "transport: http"),
    ("env: {A: b}", "transport: sse"),
    ("encoding: utf-8", "transport: websocket"),
    ("cwd: x", "transport: http"),
    ("terminate_on_close: true", "transport: sse"),
    ("sse_read_timeout: 5", "transport: websocket"),
]


@pytest.mark.proves("D-5", "003:RULE-6", "003:RULE-16", "002:RULE-9", "002:RULE-10", "002:RULE-11")
@pytest.mark.parametrize(("field", "transport"), FOREIGN)
def test_a_field_of_another_transport_is_an_error(folder: AgentFolder, field: str, transport: str) -> None:
    rest = (
        ["server: some-server"]
        if transport == "command: npx"
        else ["url: 'wss://h/'" if "web" in transport else "url: https://h/"]
    )
    (problem,) = folder.load_errors(agent_with_tool(transport, *rest, field))
    assert problem.key == f"tools[0].{field.split(':', maxsplit=1)[0]}"
    assert "has no meaning for" in problem.message


@pytest.mark.parametrize("value", ["0", "-1", '"60"', "1e9", "1.5", "true", "null", "[]", ".inf", ".nan"])
@pytest.mark.proves("000:FR-012", "002:RULE-8", "003:RULE-21")
def test_a_request_timeout_is_a_whole_number_of_seconds_within_a_day(folder: AgentFolder, value: str) -> None:
    (problem,) = folder.load_errors(agent_with_tool("command: npx", "server: x", f"request_timeout: {value}"))
    assert problem.key == "tools[0].request_timeout"
    assert problem.message.startswith("'request_timeout' must be")


@pytest.mark.parametrize(("value", "seconds"), [("1", 1), ("86400", 86400), ("6e1", 60), ("60.0", 60)])
def test_whole_numbers_in_any_notation_are_a_request_timeout(folder: AgentFolder, value: str, seconds: int) -> None:
    (server,) = folder.load(agent_with_tool("command: npx", "server: x", f"request_timeout: {value}")).agent.tools
    assert isinstance(server, MCPTool)
    assert server.request_timeout == seconds


@pytest.mark.proves("002:RULE-2", "003:RULE-1")
def test_two_tools_of_one_name_are_an_error_that_shows_the_first(folder: AgentFolder) -> None:
    one = "  - {type: mcp, name: same, description: d, command: npx, server: a}\n"
    (problem,) = folder.load_errors("name: demo\ntools:\n" + one * 2)
    assert (problem.line, problem.key) == (4, "tools[1].name")
    assert "the first in line 3" in problem.message


def test_a_tool_type_that_we_do_not_have_is_said_to_be_missing(folder: AgentFolder) -> None:
    (problem,) = folder.load_errors("name: demo\ntools:\n  - {type: vectorstore, name: docs}\n")
    assert problem.message == "Tool type 'vectorstore' is not supported. Supported types: mcp, function, agent"


@pytest.mark.parametrize(("written", "meant"), [("htp", "http"), ("ws", "websocket"), ("Streamable-HTTP", "http")])
def test_a_transport_that_there_is_not_gets_the_one_that_was_meant(
    folder: AgentFolder, written: str, meant: str
) -> None:
    tool = f"{{type: mcp, name: docs, description: d, transport: {written}, url: 'https://mcp.example.com'}}"
    (problem,) = folder.load_errors(f"name: demo\ntools:\n  - {tool}\n")
    assert (problem.key, problem.fix) == ("tools[0].transport", f"Did you mean '{meant}'?")


def test_a_url_alone_means_http(folder: AgentFolder) -> None:
    (server,) = folder.load("name: demo\ntools: [{type: mcp, name: t, url: 'https://x.example/mcp'}]\n").agent.tools
    assert isinstance(server, MCPTool)
    assert server.transport == "http"
    both = "name: demo\ntools: [{type: mcp, name: t, command: npx, args: [x], url: 'https://x.example/mcp'}]\n"
    assert "'url' has no meaning for stdio transport" in folder.load_errors(both)[0].message
    schema = jsonschema_rs.validator_for(agent_schema())
    assert schema.is_valid({"name": "demo", "tools": [{"type": "mcp", "name": "t", "url": "https://x.example/mcp"}]})
    assert not schema.is_valid(yaml.safe_load(both))


def test_a_disabled_tool_needs_nothing_more_than_its_name(folder: AgentFolder) -> None:
    (server,) = folder.load("name: demo\ntools: [{type: mcp, name: t, description: d, enabled: false}]\n").agent.tools
    assert isinstance(server, MCPTool)
    assert not server.enabled
