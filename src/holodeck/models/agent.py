"""An agent as it stands in its file: who it is, which model it asks, which tools it may use, and how it is tested."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, ModelWrapValidatorHandler, Tag, model_validator

from holodeck.lib.limits import DEFAULT_MAX_TURNS, MAX_MAX_TURNS, MAX_TOOLS
from holodeck.models.file_model import FileModel, Integer, NonEmpty, Violation, text_or_mapping, validate_with_rules
from holodeck.models.llm import LLM
from holodeck.models.tool import Tool


class InstructionsSource(FileModel):
    """Instructions written here, or in a file of their own."""

    inline: NonEmpty | None = None
    """The text itself."""
    file: NonEmpty | None = None
    """A text file, relative to the agent file."""

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


class ExpectedTool(FileModel):
    """A tool that a test case expects to be called, with the arguments that matter."""

    name: NonEmpty
    """The tool by its configured, full or bare name."""
    arguments: dict[str, Any] | None = None
    """Arguments that must be among those of the call. Absent: any."""


class TestCase(FileModel):
    """A question with what its answer should use and say."""

    __test__ = False  # the name is the user's word; pytest must not collect it

    name: NonEmpty | None = None
    """How reports call it. Absent: its `input`."""
    input: NonEmpty
    """What the agent is asked, such as `What is 1 + 2?`."""
    expected_tools: list[
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[ExpectedTool, Tag("mapping")], Discriminator(text_or_mapping)
        ]
    ] = Field(default_factory=list)
    """Tools that must be called, such as `calc.add`. An empty list: none may be called. Absent: any."""
    ground_truth: NonEmpty | None = None
    """What the answer should say. It is shown beside the answer, and not judged."""


class Agent(FileModel):
    """The whole of `agent.yaml`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_ .-]{0,127}$")]
    """How people call this agent."""
    description: NonEmpty | None = None
    """What the agent is for, in a sentence."""
    model: LLM = Field(default_factory=LLM)
    """Absent: the built-in rehearsal model, which needs no key and follows rules."""
    instructions: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[InstructionsSource, Tag("mapping")],
            Discriminator(text_or_mapping),
        ]
        | None
    ) = None
    """What the model is told before the conversation."""
    response_format: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[dict[str, Any], Tag("mapping")], Discriminator(text_or_mapping)
        ]
        | None
    ) = None
    """A JSON Schema for the answer, or a file that holds one."""
    max_turns: Annotated[Integer, Field(ge=1, le=MAX_MAX_TURNS)] = DEFAULT_MAX_TURNS
    """How often the model may be asked before the run ends as incomplete."""
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers (`type: mcp`) and Python functions (`type: function`) that the agent may use."""
    test_cases: list[TestCase] = Field(default_factory=list)
    """Questions for `holodeck test`, each with what its answer should use or say."""


class SharedSettings(FileModel):
    """The whole of `config.yaml`: what several agents share."""

    mcp_servers: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers for every agent; an agent's own tool of the same name wins."""
