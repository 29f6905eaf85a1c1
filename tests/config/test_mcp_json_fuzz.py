"""For any mcp.json: servers or a ConfigError, JSON as other parsers read it, and never a value of a variable."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holodeck.config.jsonc import parse_jsonc
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.errors import ConfigError
from holodeck.models.tool import MCPTool
from holodeck.runtime import read_servers

SECRET = "S3CR3T-vALue"
FOREIGN = [
    "command",
    "cmd",
    "args",
    "url",
    "httpUrl",
    "serverUrl",
    "uri",
    "envs",
    "env_keys",
    "envFile",
    "oauth",
    "trust",
]
FOREIGN += [
    "tools",
    "disabled",
    "autoApprove",
    "alwaysAllow",
    "includeTools",
    "excludeTools",
    "toolPermissions",
    "timeout",
]
FOREIGN += ["headersHelper", "requestInit", "dev", "gallery"]
KEYS = sorted({*MCPTool.model_fields, *FOREIGN})
WORDS = [
    "npx",
    "uvx",
    "cmd",
    "/c",
    "C:\\npx.cmd",
    "stdio",
    "ws",
    "https://h/sse",
    "unix:///x",
    "${SECRET}",
    "${input:a}",
]
WORDS += ["x${SECRET}y", "${command:x}", "${file}", "${workspaceFolder}", "${GONE}", "*", "a", "\0", "", "builtin", "~"]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(WORDS)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars: st.SearchStrategy[Any] = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "permission_policy", "clientId", "headers", "A"]), inner, max_size=4)
    ),
    max_leaves=12,
)
entries = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, values))
servers = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), entries | values, max_size=4)
files = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("servers", "mcpServers", "extensions"), servers | values)
    | {"inputs": values, "mcp": values},
)
quiet = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def _load(content: bytes) -> LoadedServers | ConfigError:
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        file = Path(name) / "mcp.json"
        file.write_bytes(content)
        try:
            return read_servers(file, environ={"SECRET": SECRET}, cwd=Path(name))
        except ConfigError as error:
            return error


@quiet
@given(files)
@example({"mcpServers": {"a": {"command": {"name": "${SECRET}"}, "args": [["${SECRET}"]]}}})
@example({"mcpServers": {"a": {"url": "https://${SECRET}@h/", "oauth": {"clientId": "${SECRET}", "x": "${SECRET}"}}}})
def test_any_file_is_read_or_refused_and_no_value_of_a_variable_is_said(content: dict[str, Any]) -> None:
    outcome = _load(json.dumps(content).encode())
    if isinstance(outcome, ConfigError):
        said = str(outcome)
    else:
        said = "".join(map(str, outcome.problems)) + repr([item.written for item in outcome.tools])
        names = [item.tool.name for item in outcome.tools] + list(outcome.refused)
        assert len(names) == len(set(names))
    assert SECRET not in said


@quiet
@given(st.binary(max_size=200) | st.text('{}[],:"/*\\n 1ea-tru', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    _load(content)


@quiet
@given(
    st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner), max_leaves=20)
)
def test_what_is_json_is_read_as_json(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        try:
            expected = json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            continue
        assert parse_jsonc(text, "f").value == expected
