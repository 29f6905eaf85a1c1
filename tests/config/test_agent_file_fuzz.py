"""For any input at all: an agent or a ConfigError, and never a value of a variable in what is said."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_folder import AgentFolder
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holodeck.cli.commands.validate import agent_summary
from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.llm import LLM
from holodeck.models.tool import FunctionTool, MCPTool

SECRET = "S3CR3T-vALue"
FIELDS = {*MCPTool.model_fields, *FunctionTool.model_fields, "envFile"}
KEYS = sorted({*Agent.model_fields, *LLM.model_fields, *FIELDS, "inline"})
WORDS = ["mcp", "function", "stdio", "http", "npx", "docker", "https://h/", "http://localhost", "openai", "${SECRET}"]
WORDS += ["x${SECRET}y", "${SECRET:-d}", "${GONE}", "@a/b", "run", "-v", "bearer", "never", ".", "\0", ""]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
names = st.sampled_from(KEYS) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=8),
    max_leaves=30,
)
tools = st.fixed_dictionaries(
    {"type": st.sampled_from(["mcp", "mcp", "function", "nope"]), "name": st.sampled_from(["a", "b", "${SECRET}"])},
    optional={key: values | st.just("${SECRET}") for key in sorted(FIELDS - {"type", "name"})},
)
agents = st.fixed_dictionaries(
    {"name": st.just("demo") | values},
    optional={"tools": st.lists(tools, max_size=3) | values}
    | dict.fromkeys(("model", "instructions", "test_cases", "response_format"), values),
)
quiet = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def _load(content: bytes) -> LoadedAgent | ConfigError:
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return AgentFolder(Path(name)).load(content, {"SECRET": SECRET})
        except ConfigError as error:
            return error


def _everything_said(outcome: LoadedAgent | ConfigError) -> str:
    if isinstance(outcome, ConfigError):
        return str(outcome) + repr(outcome.problems)
    return "".join(map(str, outcome.warnings)) + json.dumps(agent_summary(outcome)) + repr(outcome.agent.tools)


@pytest.mark.proves("D-5")
@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"%YAML 9.9\n---\na: b")
@example(b"a: !<tag:yaml.org,2002:int> x")
@quiet
def test_any_bytes_end_in_an_agent_or_a_config_error(content: bytes) -> None:
    assert isinstance(_load(content), (LoadedAgent, ConfigError))


@pytest.mark.proves("D-5")
@given(st.text(alphabet="abn: -[]{}\"'\n\t#&*!|>%@`,?<~${}1.", max_size=200))
@quiet
def test_any_text_that_looks_like_yaml_ends_in_an_agent_or_a_config_error(text: str) -> None:
    assert isinstance(_load(text.encode()), (LoadedAgent, ConfigError))


@pytest.mark.proves("D-5", "000:SC-005", "001:PRAC-2")
@given(agents | values)
@example({"name": "demo", "model": {"allow_extra_parameters": [[]]}})
@example({"name": "${SECRET}", "description": "${SECRET}", "model": {"provider": "ollama", "name": "${SECRET}"}})
@quiet
def test_no_value_of_a_variable_is_ever_shown(data: Any) -> None:
    content = yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass")
    said = _everything_said(_load(content))
    assert SECRET not in said.replace(f"name='{SECRET}'", "")
