"""The models of `agent.yaml` and `config.yaml`: an agent with its model, instructions, tools and test cases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, ModelWrapValidatorHandler, Tag, model_validator

from holodeck.lib.limits import DEFAULT_MAX_TURNS, MAX_MAX_TURNS, MAX_TOOLS
from holodeck.models.file_model import FileModel, Integer, NonEmpty, Violation, text_or_mapping, validate_with_rules
from holodeck.models.llm import LLM, NamedModel
from holodeck.models.test_case import TestCase, TestSettings
from holodeck.models.tool import AgentTool, Tool


class InstructionsSource(FileModel):
    """Instructions in the agent file, or in a file of their own."""

    inline: NonEmpty | None = None
    """Text of the instructions. It or `file` is required. E.g. `Answer in one sentence.`, not `''`."""
    file: NonEmpty | None = None
    """Path of a text file, relative to the agent file. E.g. `instructions.md`, not `missing.md`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[InstructionsSource]) -> InstructionsSource:
        return validate_with_rules(cls.__name__, data, handler, _check_one_source)


def _check_one_source(data: dict[str, Any]) -> list[Violation]:
    if data.get("inline") is not None and data.get("file") is not None:
        return [Violation(key="file", message="give 'inline' or 'file', not both")]
    if data.get("inline") is None and data.get("file") is None:
        return [Violation(key="inline", message="'inline' or 'file' is required")]
    return []


class Agent(FileModel):
    """The content of `agent.yaml`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_ .-]{0,127}$")]
    """Name of the agent. E.g. `helper`, not `my@agent`."""
    description: NonEmpty | None = None
    """Purpose of the agent, in one sentence. E.g. `Answers questions about the files in data/`, not `''`."""
    author: NonEmpty | None = None
    """Who wrote the agent. `holodeck validate` shows it. E.g. `Ada Lovelace`, not `''`."""
    model: LLM = Field(default_factory=LLM)
    """Model of the agent: `provider:name` as text, the name of one of your models, or a mapping with its settings.
    Absent: the built-in rehearsal model, which follows rules and needs no key. E.g. `{provider: openai, name:
    gpt-5-mini}`, not `gpt-5-mini`."""
    instructions: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[InstructionsSource, Tag("mapping")],
            Discriminator(text_or_mapping),
        ]
        | None
    ) = None
    """Instructions for the model, sent before the conversation: a text, or a mapping with `inline` or `file`. E.g.
    `{file: instructions.md}`, not `{file: missing.md}`."""
    response_format: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[dict[str, Any], Tag("mapping")], Discriminator(text_or_mapping)
        ]
        | None
    ) = None
    """JSON Schema of the answer, or the path of a file that contains one. E.g. `answer.schema.json`, not `{type:
    strin}`."""
    max_turns: Annotated[Integer, Field(ge=1, le=MAX_MAX_TURNS)] = DEFAULT_MAX_TURNS
    """Model turns after which a run ends as incomplete. E.g. `20`, not `0`."""
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers (`type: mcp`), Python functions (`type: function`) and other agents (`type: agent`). E.g. `[{name:
    files, type: mcp, command: npx, server: '@modelcontextprotocol/server-filesystem'}]`, not `files`."""
    test_cases: list[TestCase] = Field(default_factory=list)
    """Test cases for `holodeck test`. E.g. `[{input: 'What is 1 + 2?'}]`, not `{input: 'What is 1 + 2?'}`."""
    test_settings: TestSettings = Field(default_factory=TestSettings)
    """What the test cases share: how a `ground_truth` is judged, the model that judges, and models to compare. E.g.
    `{ground_truth_by: equals}`, not `{ground_truth_by: bleu}`."""

    @property
    def asked_agents(self) -> list[AgentTool]:
        """The agents among the tools."""
        return [tool for tool in self.tools if isinstance(tool, AgentTool)]


class SharedSettings(FileModel):
    """The content of `config.yaml`: settings that several agents share."""

    mcp_servers: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers for every agent. An agent's own tool of the same name takes precedence. E.g. `[{name: time, command:
    uvx, server: mcp-server-time}]`, not `{time: {}}`."""
    models: list[NamedModel] = Field(default_factory=list)
    """Models that your agents name by `use`, each defined once.

    Only in `~/.holodeck/config.yaml`: a file of a project defines its model in the agent file. E.g. `[{name: fast,
    model: {provider: openai, name: gpt-5-mini}}]`, not `{fast: {}}`.
    """
    allowed_commands: list[NonEmpty] = Field(default_factory=list)
    """Programs that `command` of your agents may name besides npx, uvx and docker: names on PATH, or whole paths.

    Only in `~/.holodeck/config.yaml`: a file of a project cannot allow itself more. E.g. `[python, /opt/tools/server]`,
    not `python`.
    """
    registry: NonEmpty | None = None
    """Registry that `holodeck mcp search` and `add` ask: its URL, or the path of a snapshot. Absent: the official one.

    Only in `~/.holodeck/config.yaml`. E.g. `https://registry.example.com`, not `['https://registry.example.com']`.
    """
