"""`gateway.yaml`: what it may say, what the environment adds, and how secrets come in."""

from __future__ import annotations

import pytest
from agent_folder import AgentFolder

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.redaction import LOG_SECRETS
from holodeck.models.auth import BearerAuth
from holodeck.models.tool import MCPTool, TransportType
from holodeck.runtime import read_gateway

MODEL = "models: [{name: fast, model: {provider: openai, name: gpt-5-mini, api_key: '${KEY}'}}]\n"
ENV = {"KEY": "k3y"}


def load(folder: AgentFolder, text: str, env: dict[str, str] | None = None) -> LoadedGateway:
    folder.write("gateway.yaml", text)
    return read_gateway(folder.path / "gateway.yaml", environ=ENV if env is None else env, home=folder.home)


def errors(folder: AgentFolder, text: str, env: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, env)
    return [problem for problem in caught.value.problems if problem.severity == "error"]


@pytest.mark.proves("004:FR-015", "004:FR-016", "004:FR-011")
def test_a_gateway_serves_models_and_agents_with_servers_keys_and_limits(folder: AgentFolder) -> None:
    folder.write("support.yaml", "name: support\nmodel: {provider: openai, name: x, api_key: '${KEY}'}\n")
    loaded = load(
        folder,
        MODEL
        + f"""
listen: {{port: 9000}}
agents: [{{file: support.yaml}}]
mcp_servers:
  - name: github
    description: d
    transport: http
    url: https://mcp.example/github
    auth: {{type: bearer, token: "${{KEY}}"}}
  - {{name: search, description: d, transport: sse, url: https://mcp.example/sse, headers: {{X-API-Key: "${{KEY}}"}}}}
keys: [{{name: alice, hash: "sha256:{"0" * 64}", limits: {{in_flight: 2}}}}]
storage: {{url: "sqlite:///x.db", retention_days: 7}}
limits: {{in_flight: 5, key: {{requests_per_minute: 60}}}}
""",
    )
    assert loaded.gateway.listen.port == 9000
    assert (list(loaded.models), list(loaded.agents)) == (["fast"], ["support"])
    github, search = (item.tool for item in loaded.servers)
    assert isinstance(github, MCPTool)
    assert isinstance(github.auth, BearerAuth)
    assert github.auth.token.reveal() == "k3y"
    assert search.name == "search"


@pytest.mark.proves("004:FR-015")
def test_every_value_can_come_from_the_environment(folder: AgentFolder) -> None:
    env = {
        **ENV,
        "HOLODECK_LISTEN__PORT": "9001",
        "HOLODECK_LISTEN__HOST": "::1",
        "HOLODECK_STORAGE__URL": "postgresql://db/holodeck",
        "HOLODECK_LIMITS__KEY__IN_FLIGHT": "3",
        "HOLODECK_MCP_SERVERS__GITHUB__URL": "https://mcp.example/new",
        "HOLODECK_MCP_SERVERS__GITHUB__HEADERS": '{"Authorization": "Bearer t"}',
        "HOLODECK_MODELS__FAST__MODEL__TEMPERATURE": "0.5",
        "HOLODECK_SOMETHING_ELSE": "ignored",
    }
    loaded = load(folder, MODEL + "mcp_servers: [{name: github, url: https://mcp.example/old}]\n", env)
    gateway = loaded.gateway
    assert (gateway.listen.host, gateway.listen.port, gateway.limits.key.in_flight) == ("::1", 9001, 3)
    assert gateway.storage.url == "postgresql://db/holodeck"
    assert loaded.models["fast"].model.temperature == 0.5
    (item,) = loaded.servers
    assert isinstance(item.tool, MCPTool)
    assert (item.tool.name, item.tool.transport, item.tool.url) == (
        "github",
        TransportType.HTTP,
        "https://mcp.example/new",
    )


@pytest.mark.proves("D-30", "004:FR-021", "004:US3-1")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("models: [{name: a, model: {provider: openai, name: x, api_key: sk-literal}}]\n", "models[0].model.api_key"),
        (
            MODEL + "mcp_servers: [{name: a, url: https://h/, headers: {Authorization: Bearer literal}}]\n",
            "mcp_servers[0].headers.Authorization",
        ),
        (
            MODEL + "mcp_servers: [{name: a, url: https://h/, auth: {type: bearer, token: literal}}]\n",
            "mcp_servers[0].auth.token",
        ),
    ],
)
def test_a_secret_written_into_the_file_is_refused_with_the_way_out(folder: AgentFolder, text: str, key: str) -> None:
    (problem,) = errors(folder, text)
    assert problem.key == key
    assert "${" in problem.fix
    assert "literal" not in str(problem)


@pytest.mark.proves("D-30", "004:FR-021")
def test_a_secret_can_be_mounted_as_a_file(folder: AgentFolder) -> None:
    folder.write("secrets/key", "from-the-file\n")
    loaded = load(folder, "models: [{name: a, model: {provider: openai, name: x, api_key_file: secrets/key}}]\n")
    key = loaded.models["a"].model.api_key
    assert key is not None
    assert key.reveal() == "from-the-file"
    (problem,) = errors(folder, "models: [{name: a, model: {provider: openai, name: x, api_key_file: gone}}]\n")
    assert "no such file" in problem.message
    (problem,) = errors(folder, MODEL + "storage: {url_file: gone}\n")
    assert (problem.key, "no such file" in problem.message) == ("storage.url_file", True)


def test_a_process_is_refused_where_it_stands_behind_a_server_that_is_wrong(folder: AgentFolder) -> None:
    wrong, process = (
        "{name: a b, description: d, url: 'https://x.example'}",
        "{name: m, description: d, command: npx, server: x}",
    )
    name, place = errors(folder, MODEL + f"mcp_servers: [3, {wrong}, {process}]\n")[1:]
    assert (name.key, place.key) == ("mcp_servers[1].name", "mcp_servers[2]")


def test_a_function_among_the_servers_is_refused(folder: AgentFolder) -> None:
    folder.write("plus.py", "def plus(a: int, b: int) -> int: ...\n")
    function = "{type: function, name: plus, file: plus.py, function: plus}"
    (problem,) = errors(folder, MODEL + f"mcp_servers: [{function}]\n")
    assert (problem.key, problem.message) == ("mcp_servers[0]", "a function is no MCP server")


@pytest.mark.proves("D-30")
def test_the_user_of_a_database_is_no_secret(folder: AgentFolder) -> None:
    """Otherwise the user `holodeck` would be masked in every command that a message names."""
    environ = ENV | {"DATABASE_URL": "postgresql://some-body@db/holodeck"}
    load(folder, MODEL + "storage: {url: '${DATABASE_URL}'}\n", environ)
    assert LOG_SECRETS.mask("Run it as some-body.") == "Run it as some-body."


def test_the_address_of_a_database_is_a_secret_when_it_has_a_password(folder: AgentFolder) -> None:
    (problem,) = errors(folder, MODEL + "storage: {url: 'postgresql://me:literal@db/holodeck'}\n")
    assert problem.key == "storage.url"
    assert "'url_file'" in problem.fix
    assert "literal" not in str(problem)
    folder.write("database", "postgresql://me:mounted@db/holodeck\n")
    for storage in ("{url_file: database}", "{url: '${DATABASE_URL}'}"):
        env = ENV | {"DATABASE_URL": "postgresql://me:mounted@db/holodeck"}
        loaded = load(folder, MODEL + f"storage: {storage}\n", env)
        assert loaded.gateway.storage.url == "postgresql://me:mounted@db/holodeck"
    plain = load(folder, MODEL + "storage: {url: 'postgresql://me@db/holodeck'}\n")
    assert plain.gateway.storage.url == "postgresql://me@db/holodeck"


@pytest.mark.proves("D-27", "004:FR-020", "004:FR-001")
def test_a_gateway_starts_no_process_unless_its_file_says_so(folder: AgentFolder) -> None:
    text = MODEL + "mcp_servers: [{name: a, description: d, command: npx, server: x}]\n"
    (problem,) = errors(folder, text)
    assert "allow_stdio: true" in problem.fix
    assert load(folder, text + "allow_stdio: true\n").servers
    folder.write("local.yaml", "name: local\ntools: [{type: mcp, name: a, description: d, command: npx, server: x}]\n")
    (problem,) = errors(folder, "agents: [{file: local.yaml}]\n")
    assert problem.key == "agents[0].file"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen: {port: 1}\n", "serves nothing"),
        (MODEL + "lisen: {port: 1}\n", "Did you mean 'listen'?"),
        (MODEL + "listen: {prt: 1}\n", "Did you mean 'port'?"),
        (MODEL + "listen: {port: 70000}\n", "at most 65535"),
        (MODEL + "keys: [{name: a, hash: plain}]\n", "keys[0].hash"),
        (MODEL + "jwt: {issuer: a, audience: b}\n", "jwks_url"),
        (MODEL + "request_servers: {hosts: [a.example]}\n", "allow: true"),
        (MODEL + "request_servers: {allow: true, hosts: ['https://a.example/']}\n", "is not a host"),
        (MODEL + "request_servers: {allow: true, allow_private_hosts: [10.0.0.0/99]}\n", "is not a host"),
        (MODEL + "request_servers: {allow: true, max_per_request: 0}\n", "max_per_request"),
        (MODEL + "compaction: {model: gone}\n", "no model or agent is served as 'gone'"),
        (MODEL + "compaction: {target_tokens: 10}\n", "compaction.target_tokens"),
        (MODEL + "request_files: {max_bytes: 5}\n", "no meaning without"),
        (MODEL + "agents: [{file: gone.yaml}]\n", "no such file"),
        (MODEL + MODEL.replace("models", "agents"), "agents[0]"),
        (MODEL.replace("]\n", ", {name: fast, model: {provider: rehearsal}}]\n"), "taken above"),
    ],
)
def test_what_is_wrong_is_said_as_for_an_agent_file(folder: AgentFolder, text: str, words: str) -> None:
    assert any(words in f"{problem} {problem.fix}" for problem in errors(folder, text))


def test_an_agent_file_can_be_served_as_it_is(folder: AgentFolder) -> None:
    folder.write("agent.yaml", "name: solo\n")
    loaded = read_gateway(folder.path / "agent.yaml", environ={}, home=folder.home)
    assert list(loaded.agents) == ["solo"]
    assert loaded.gateway.listen.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modles: [{name: fast, model: {provider: rehearsal}}]\n", "Did you mean 'models'?"),
        ("name: ours\n" + MODEL + "listen: {port: 1}\n", "unknown key 'name'"),
        (MODEL + "keys: [{name: a, hash: plain}]\n", "holodeck keys create"),
        (MODEL + "keys: [{name: a b, hash: plain}]\n", "keys[0].name: 'name' must be 1 to 128"),
        (
            MODEL + f"keys: [{{name: a, hash: 'sha256:{'0' * 64}'}}, {{name: b, hash: 'sha256:{'0' * 64}'}}]\n",
            "same key",
        ),
        (MODEL + "agents: [{file: solo.yaml, name: fast}]\n", "models[0].name: an agent is served by this name"),
        (MODEL + "storage: {url: 'mysql://host/name'}\n", "sqlite:///path"),
        (MODEL + "storage: {url: 'sqlite://relative.db'}\n", "three slashes"),
        (MODEL + "jwt: {issuer: a, audience: b, jwks_url: keys}\n", "'jwks_url' must begin with a scheme"),
        (MODEL + "jwt: {issuer: a, audience: b, jwks_url: 'http://id.example/keys'}\n", "'jwks_url' must use https://"),
        (MODEL + "jwt: {issuer: a, audience: b, jwks_file: gone.json}\n", "cannot read 'gone.json'"),
        (MODEL + "jwt: {issuer: a, audience: b, jwks_file: gateway.yaml}\n", "is not JSON"),
        (MODEL + "seal_key: '${NONE:-}'\n", "secrets.token_urlsafe(32)"),
        (
            MODEL + "seal_key: '${NONE:-31-bytes-are-one-too-few-for-it}'\n",
            "seal_key: a key that seals has at least 32",
        ),
        (
            MODEL + "seal_key: ['${NONE:-these-32-bytes-are-enough-for-it}', '${NONE:-short}']\n",
            "seal_key[1]: a key that",
        ),
        (
            MODEL + "seal_key: ['${NONE:-these-32-bytes-are-enough-for-it}', literal]\n",
            "seal_key[1]: a secret must not",
        ),
        (MODEL + "seal_key: []\n", "'seal_key' is an empty list"),
        (MODEL + "seal_key: 5\n", "seal_key"),
        (MODEL + "seal_key_file: [short, gone]\n", "seal_key_file[0]: a key that seals"),
        (MODEL + "seal_key_file: [short, gone]\n", "seal_key_file[1]: cannot read the secret"),
        (MODEL + "seal_key_file: [5]\n", "seal_key_file[0]: 'seal_key_file' must be the path of a file"),
        (MODEL + "seal_key_file: []\n", "'seal_key_file' is an empty list"),
        (MODEL + "seal_key_file: empty\n", "empty"),
        (MODEL + "seal_key_file: two-lines\n", "more than one line"),
        (MODEL + "seal_key_file: large\n", "larger than 64 KB"),
    ],
)
def test_what_would_go_wrong_later_is_said_when_the_file_is_read(folder: AgentFolder, text: str, words: str) -> None:
    folder.write("empty", "\n")
    folder.write("short", "short\n")
    folder.write("solo.yaml", "name: solo\n")
    folder.write("two-lines", "one\ntwo\n")
    folder.write("large", "x" * 70_000)
    assert any(words in f"{problem.key}: {problem.message} {problem.fix}" for problem in errors(folder, text))


def test_a_wrong_value_of_the_environment_is_said_to_be_there(folder: AgentFolder) -> None:
    env = {"HOLODECK_LISTEN__PORT": "many", "HOLODECK_KEYS__ALICE__HASH": "wrong-value", "HOLODECK_LISTN__PORT": "1"}
    text = MODEL + f"keys: [{{name: alice, hash: 'sha256:{'0' * 64}'}}]\n"
    port, key = sorted(errors(folder, text, ENV | env), key=lambda problem: problem.key, reverse=True)
    assert (port.where, port.key) == ("HOLODECK_LISTEN__PORT", "listen.port")
    assert (key.where, key.key) == ("HOLODECK_KEYS__ALICE__HASH", "keys[0].hash")
    assert "wrong-value" not in str(key)
    del env["HOLODECK_LISTEN__PORT"], env["HOLODECK_KEYS__ALICE__HASH"]
    env |= {"HOLODECK_PORT": "tcp://10.0.0.1:80", "HOLODECK_LISTEN_PORT": "1"}
    warnings = load(folder, MODEL, ENV | env).warnings
    assert [each.where for each in warnings] == ["HOLODECK_LISTEN_PORT", "HOLODECK_LISTN__PORT"]
    assert {each.fix for each in warnings} == {"Did you mean HOLODECK_LISTEN__PORT?"}
    folder.write("agent.yaml", "name: solo\n")
    with pytest.raises(ConfigError) as caught:
        read_gateway(folder.path / "agent.yaml", environ={"HOLODECK_LISTEN__PORT": "many"}, home=folder.home)
    assert caught.value.problems[0].where == "HOLODECK_LISTEN__PORT"


@pytest.mark.parametrize(
    ("variable", "fix"),
    [
        ("HOLODECK_MODELS__FATS__MODEL__NAME", "Did you mean HOLODECK_MODELS__FAST__MODEL__NAME? "),
        ("HOLODECK_MODELS__MODEL__MODEL__NAME", ""),
        ("HOLODECK_MCP_SERVERS__GITHUB__URL", ""),
        ("HOLODECK_KEYS__ALICE__HASH", ""),
    ],
)
def test_a_variable_changes_an_entry_of_the_file_and_never_makes_a_new_one(
    folder: AgentFolder, variable: str, fix: str
) -> None:
    (problem,) = errors(folder, MODEL, ENV | {variable: "v4lue"})
    whole = variable.partition("__")[0]
    assert problem.where == variable
    assert problem.fix == f"{fix}Add it to the file, or set {whole} to the whole list as JSON."
    assert "v4lue" not in str(problem)


def test_a_key_of_digits_is_text_also_in_the_environment(folder: AgentFolder) -> None:
    env = {
        "HOLODECK_MODELS__FAST__MODEL__API_KEY": "007",
        "HOLODECK_JWT": '{"issuer": "a", "jwks_url": "https://id.example/keys"}',
        "HOLODECK_JWT__AUDIENCE": "1234567890",
        "HOLODECK_LIMITS__DRAIN_SECONDS": "1.5",
    }
    loaded = load(folder, MODEL, ENV | env)
    assert loaded.gateway.jwt is not None
    assert loaded.gateway.jwt.audience == "1234567890"
    key = loaded.models["fast"].model.api_key
    assert key is not None
    assert key.reveal() == "007"
    assert loaded.gateway.limits.drain_seconds == 1.5
