"""The models of `agent.yaml` and `config.yaml`: an agent with its model, instructions, tools and test cases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, ModelWrapValidatorHandler, Tag, model_validator

from holodeck.lib.limits import DEFAULT_MAX_TURNS, MAX_MAX_TURNS, MAX_TOOLS
from holodeck.models.file_model import FileModel, Integer, NonEmpty, Violation, text_or_mapping, validate_with_rules
from holodeck.models.llm import LLM
from holodeck.models.test_case import TestCase, TestSettings
from holodeck.models.tool import Tool


class InstructionsSource(FileModel):
    """Instructions in the agent file, or in a file of their own."""

    inline: NonEmpty | None = None
    """Text of the instructions. It or `file` is required."""
    file: NonEmpty | None = None
    """Path of a text file, relative to the agent file."""

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
    """Name of the agent."""
    description: NonEmpty | None = None
    """Purpose of the agent, in one sentence."""
    author: NonEmpty | None = None
    """Who wrote the agent. `holodeck validate` shows it."""
    model: LLM = Field(default_factory=LLM)
    """Model of the agent. Absent: the built-in rehearsal model, which follows rules and needs no key."""
    instructions: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[InstructionsSource, Tag("mapping")],
            Discriminator(text_or_mapping),
        ]
        | None
    ) = None
    """Instructions for the model, sent before the conversation: a text, or a mapping with `inline` or `file`."""
    response_format: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[dict[str, Any], Tag("mapping")], Discriminator(text_or_mapping)
        ]
        | None
    ) = None
    """JSON Schema of the answer, or the path of a file that contains one."""
    max_turns: Annotated[Integer, Field(ge=1, le=MAX_MAX_TURNS)] = DEFAULT_MAX_TURNS
    """Model turns after which a run ends as incomplete."""
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers (`type: mcp`) and Python functions (`type: function`) that the agent may use."""
    test_cases: list[TestCase] = Field(default_factory=list)
    """Test cases for `holodeck test`."""
    test_settings: TestSettings = Field(default_factory=TestSettings)
    """What the test cases share: how a `ground_truth` is judged, the model that judges, and models to compare."""


class SharedSettings(FileModel):
    """The content of `config.yaml`: settings that several agents share."""

    mcp_servers: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers for every agent. An agent's own tool of the same name takes precedence."""
    allowed_commands: list[NonEmpty] = Field(default_factory=list)
    """Programs that `command` of your agents may name besides npx, uvx and docker: names on PATH, or whole paths.

    Only in `~/.holodeck/config.yaml`: a file of a project cannot allow itself more.
    """
    registry: NonEmpty | None = None
    """Registry that `holodeck mcp search` and `add` ask: its URL, or the path of a snapshot. Absent: the official one.

    Only in `~/.holodeck/config.yaml`.
    """
