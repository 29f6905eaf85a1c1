"""`reference/agent-file.md`, `gateway-file.md` and `config-file.md`: every key of a configuration file.

Type, default and meaning come from the JSON Schema that `holodeck schema` prints. Each example is loaded as a file, and
so is each wrong value: the page shows the error that it gives. A key of the schema that is in no group is an error.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from generate.key_groups import AGENT_GROUPS, CONFIG_GROUPS, GATEWAY_GROUPS, LEFT_OUT, Group, Key
from generate.markdown import NOTICE, code, join_blocks, slug, table
from holodeck.config.json_schema import SCHEMAS
from holodeck.lib.errors import ConfigError, Problem
from holodeck.runtime import read_agent, read_gateway

_VARIABLES = {
    "OPENAI_API_KEY": "key",
    "MODEL_KEY": "key",
    "API_TOKEN": "token",
    "CLIENT_SECRET": "secret",
    "COLLECTOR_KEY": "key",
    "SEAL_KEY": "0123456789abcdef0123456789abcdef",
    "SHORT": "0123",
}
_FILES = {
    "agent.yaml": "name: helper\nmodel: {provider: rehearsal}\n",
    ".holodeck/config.yaml": "models: [{name: fast, model: {provider: rehearsal}}]\n",
    "instructions.md": "Answer in one sentence.\n",
    "answer.schema.json": '{"type": "object"}\n',
    "tools/prices.py": 'def price(product: str) -> float:\n    """Price of a product in euros."""\n    return 1.0\n',
    "data/welcome.md": "Welcome.\n",
    "librarian.yaml": "name: librarian\n",
    "server.env": "LOG_LEVEL=debug\n",
    "client.pem": "a key\n",
    "assertion.jwt": "a token\n",
    "keys.json": '{"keys": [{"kty": "oct", "k": "AAAA"}]}\n',
    "login.secret": "secret",
    "seal.key": "0123456789abcdef0123456789abcdef\n",
    "database.url": "postgresql://holodeck@db.example.com/holodeck\n",
}
_SHARED_BY_FILES = (
    "LLM",
    "Price",
    "LongPromptPrices",
    "TierPrices",
    "Deployment",
    "MCPTool",
    "Approval",
    "Sandbox",
    "BearerAuth",
    "OAuthClientCredentials",
    "OAuthAuthorizationCode",
)
_GROUPS = {"agent": AGENT_GROUPS, "gateway": GATEWAY_GROUPS, "config": CONFIG_GROUPS}
_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}

_AGENT_INTRO = """\
An agent is one file, `agent.yaml`. `holodeck validate` checks it, and `holodeck schema > agent.schema.json` gives your
editor the same keys for completion.

```yaml
# agent.yaml
name: helper
description: Answers questions about the files in data/
model:
  provider: rehearsal
instructions: Answer in one sentence.
tools:
  - name: files
    description: Files of this project
    type: mcp
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", "data"]
    allowed_tools: [read_text_file, list_directory]
test_cases:
  - input: What is in the data folder?
    expected_tools: [files.list_directory]
```

A value can take a variable of the environment or of the `.env` file beside the agent file: `${NAME}`, or
`${NAME:-default}`. Paths are relative to the agent file. An unknown key is an error that names the closest one."""

_GATEWAY_INTRO = """\
A gateway is one file, `gateway.yaml`. `holodeck serve` serves it, `holodeck validate gateway.yaml` checks it, and
`holodeck schema gateway > gateway.schema.json` gives your editor the same keys for completion.

```yaml
# gateway.yaml
listen:
  port: 8080
models:
  - name: small
    model:
      provider: rehearsal
mcp_servers:
  - name: tickets
    description: Support tickets of our customers
    transport: http
    url: https://mcp.example.com/mcp
storage:
  url: sqlite:///holodeck.db
limits:
  key:
    requests_per_minute: 60
```

Every key can be overridden by a variable of the environment, with `__` between its parts: `HOLODECK_LISTEN__PORT=9000`.
An entry of a list is named by its `name` or its number: `HOLODECK_MCP_SERVERS__TICKETS__URL=...`."""

_CONFIG_INTRO = """\
`config.yaml` holds MCP servers that several agents share. HoloDeck reads the one beside the agent file and the one in
`~/.holodeck`. A tool of the agent with the same name takes precedence.

```yaml
# config.yaml
mcp_servers:
  - name: time
    description: The time in any time zone
    command: uvx
    server: mcp-server-time
```

`holodeck schema config > config.schema.json` gives your editor the same keys for completion."""

_SEE_ALSO = {
    "agent": "See also: [gateway file](gateway-file.md), [shared settings](config-file.md), [command line](cli.md).",
    "gateway": "See also: [agent file](agent-file.md), [environment variables](environment.md).",
    "config": "See also: [agent file](agent-file.md).",
}


def build_agent_page() -> str:
    """Return the page about `agent.yaml`."""
    return _build_page("agent", "Agent file", _AGENT_INTRO)


def build_gateway_page() -> str:
    """Return the page about `gateway.yaml`."""
    return _build_page("gateway", "Gateway file", _GATEWAY_INTRO, _secrets_section())


def build_config_page() -> str:
    """Return the page about `config.yaml`."""
    return _build_page("config", "Shared settings file", _CONFIG_INTRO)


def _build_page(kind: str, title: str, intro: str, *more: str) -> str:
    schema, groups = SCHEMAS[kind](), _GROUPS[kind]
    shared = () if kind == "agent" else _SHARED_BY_FILES
    _require_complete(schema, groups, shared)
    overview = [(f"[{group.title}](#{slug(group.title)})", _first_sentence(group, schema)) for group in groups]
    with tempfile.TemporaryDirectory() as name:
        samples = _SampleLoader(kind, Path(name))
        sections = [block for group in groups for block in _group_blocks(group, schema, samples)]
    contents = table(("Keys", "What they are about"), overview) if len(overview) > 1 else ""
    return join_blocks([f"# {title}", NOTICE, intro, contents, *sections, *more, _SEE_ALSO[kind]])


def _definition(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema["$defs"][name] if name else schema
    return found


def _require_complete(schema: Mapping[str, Any], groups: Sequence[Group], shared: Sequence[str]) -> None:
    documented = {group.definition: set(group.keys) for group in groups}
    for name, definition in (("", schema), *schema["$defs"].items()):
        keys = set(definition.get("properties", {}))
        if name not in shared and keys != documented.get(name, set()):
            raise ValueError(f"key_groups lacks or invents keys of '{name}': {keys ^ documented.get(name, set())}")


def _first_sentence(group: Group, schema: Mapping[str, Any]) -> str:
    text = group.about or str(_definition(schema, group.definition).get("description", ""))
    return " ".join(re.split(r"(?<=[.]) ", " ".join(text.split()))[:1])


def _group_blocks(group: Group, schema: Mapping[str, Any], samples: _SampleLoader) -> Iterator[str]:
    definition = _definition(schema, group.definition)
    yield f"## {group.title}"
    yield group.about or str(definition.get("description", ""))
    required = definition.get("required", ())
    for name, field in definition["properties"].items():
        variant = f" ({group.variant})" if group.variant else ""
        yield f"### `{group.path}{name}`{variant}"
        yield " ".join(str(field["description"]).split())
        yield _facts(group, name, field, schema, is_required=name in required, samples=samples)


def _facts(
    group: Group,
    name: str,
    field: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    is_required: bool,
    samples: _SampleLoader,
) -> str:
    key = group.keys[name]
    samples.require_valid(group, name, key)
    problem = samples.find_problem(group, name, key)
    wrong = "Left out" if key.wrong is LEFT_OUT else f"Wrong: {code(_as_yaml(name, key.wrong))}"
    lines = [
        f"- Type: {describe_type(field, schema)}{_links_to_groups(field, samples.kind)}",
        "- Required" if is_required else f"- Default: {_default(field)}",
        f"- Example: {code(_as_yaml(name, key.example))}",
        f"- {wrong}: {_error_text(problem)}",
    ]
    return "\n".join(lines)


def _links_to_groups(field: Mapping[str, Any], kind: str) -> str:
    """Return links to the keys of the mappings that a value may be."""
    links = []
    for name in re.findall(r"#/\$defs/(\w+)", json.dumps(field)):
        for page, groups in (("", _GROUPS[kind]), ("agent-file.md", AGENT_GROUPS)):
            found = [f"[{group.title}]({page}#{slug(group.title)})" for group in groups if group.definition == name]
            if found:
                links += found
                break
    return f": {', '.join(links)}" if links else ""


def _error_text(problem: Problem) -> str:
    return f"{code(problem.message)}." + (f" {problem.fix}" if problem.fix else "")


def _as_yaml(name: str, value: Any) -> str:
    text = yaml.safe_dump({name: value}, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.strip()[1:-1]


def describe_type(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the type of a value with its limits, in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return describe_type(schema["$defs"][name], schema) if "properties" not in schema["$defs"][name] else "mapping"
    if "anyOf" in field or "oneOf" in field:
        kinds = [describe_type(each, schema) for each in field.get("anyOf") or field["oneOf"] if not _is_implied(each)]
        return ", or ".join(dict.fromkeys(kinds)) or "text with a variable, such as `${NAME}`"
    if "const" in field:
        return code(str(field["const"]))
    if "enum" in field:
        return "one of " + ", ".join(code(str(value)) for value in field["enum"])
    kind = field.get("type")
    if kind == "array":
        items = describe_type(field["items"], schema) if field.get("items") else "anything"
        at_most = f", at most {field['maxItems']}" if "maxItems" in field else ""
        return f"list of {_plural(items)}{at_most}"
    if kind == "object" or kind is None:
        return "mapping"
    return _TYPES.get(str(kind), str(kind)) + _limits(field)


def _plural(items: str) -> str:
    return ", or ".join({"text": "texts", "mapping": "mappings"}.get(each, each) for each in items.split(", or "))


def _is_implied(field: Mapping[str, Any]) -> bool:
    """Whether this alternative goes without saying: a variable, or nothing."""
    return field.get("type") == "null" or field.get("pattern") == r"\$\{"


def _limits(field: Mapping[str, Any]) -> str:
    low = f"from {field['minimum']:g}" if "minimum" in field else ""
    low = f"above {field['exclusiveMinimum']:g}" if "exclusiveMinimum" in field else low
    high = f"to {_plain_number(field['maximum'])}" if "maximum" in field else ""
    return (", " + " ".join(bound for bound in (low, high) if bound)) if low or high else ""


def _plain_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if "default" not in field and "$ref" in field:
        return "those of its keys"
    if value is None or value == "":
        return "none"
    if isinstance(value, float):
        return code(_plain_number(value))
    return code(yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n..."))


class _SampleLoader:
    """Loads files with one chosen value, as the commands load them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        for name, text in _FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    def require_valid(self, group: Group, name: str, key: Key) -> None:
        """Load the example. Raises `ConfigError` if it is not valid."""
        self._load(group, name, key, key.example)

    def find_problem(self, group: Group, name: str, key: Key) -> Problem:
        """Load the wrong value and return the problem with it. Raises `ValueError` if there is none."""
        try:
            self._load(group, name, key, key.wrong)
        except ConfigError as error:
            own = [problem for problem in error.problems if name in problem.key]
            return (own or list(error.problems))[0]
        raise ValueError(f"{group.path}{name}: {key.wrong!r} is not wrong")

    def _load(self, group: Group, name: str, key: Key, value: Any) -> None:
        data = copy.deepcopy(dict(group.file))
        mapping: Any = data
        for part in group.at:
            mapping = mapping[part]
        mapping.update(key.beside)
        mapping[name] = value
        for absent in [each for each in mapping if mapping[each] is None or mapping[each] is LEFT_OUT]:
            del mapping[absent]
        text = yaml.safe_dump(data, sort_keys=False)
        # Shared settings of the user, which may have all keys.
        path = self._folder / (".holodeck/config.yaml" if self.kind == "config" else f"{self.kind}.yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if self.kind == "gateway":
            read_gateway(path, environ=_VARIABLES, home=self._folder)
        elif group.model == "AgentTool" and "agent" in mapping:
            # It names an agent of the gateway that serves the file.
            gateway = self._folder / "gateway.yaml"
            gateway.write_text("agents: [{file: agent.yaml}, {file: librarian.yaml}]\n", encoding="utf-8")
            read_gateway(gateway, environ=_VARIABLES, home=self._folder)
        else:
            read_agent(self._folder / "agent.yaml", environ=_VARIABLES, home=self._folder)


def _secrets_section() -> str:
    """Return the section about `NAME_file`, the keys that only a gateway file has beside those of an agent file."""
    agent, gateway = SCHEMAS["agent"]()["$defs"], SCHEMAS["gateway"]()["$defs"]
    rows = [
        (code(key), code(key.removesuffix("_file")), str(gateway[name]["properties"][key]["description"]))
        for name in _SHARED_BY_FILES
        for key in gateway[name]["properties"]
        if key not in agent[name]["properties"]
    ]
    text = """\
A secret is never written into a gateway file. Write a variable, `${NAME}`, or name a file that holds the secret, as
container platforms mount it. These keys stand beside those of [model](agent-file.md#keys-of-model) and `auth`."""
    return join_blocks(["## Secrets in files", text, table(("Key", "Instead of", "Meaning"), dict.fromkeys(rows))])
