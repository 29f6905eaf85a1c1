"""Items of an input in the Responses API, one model for each type. Fields are in reading order.

Their readers in `wire/request` read them one by one, after the rest of the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.model import (
    AS_MANY_AS_ITEMS,
    FAIL_FAST,
    NAMED,
    NO_VALUE,
    ClosedModel,
    Ignored,
    LongText,
    NonEmptyText,
    OneOf,
    kinds_of,
    limit_length,
    refuse_value,
    wrong_type,
)
from holodeck.gateway.api.models.parts import AnswerContent, FileContent, ImageURL, InputContent
from holodeck.lib.limits import MAX_CALL_ID_CHARS, MAX_INPUT_TEXT_CHARS, MAX_REQUEST_TOOLS, MAX_TOOL_NAME_CHARS

_IN_ORDER = "Calls are answered in order."
_NO_PROGRAMS = "This gateway runs no programs that call tools."
_NO_SCREENSHOTS = "This gateway stores no files: send the screenshot itself, as a data URL, or its URL."
# Texts of a list such as `queries`, of which each has a few.
_MAX_LISTED_TEXTS = 1_000

ItemStatus = Literal["in_progress", "completed", "incomplete"]
HostedStatus = Literal["in_progress", "searching", "interpreting", "generating", "completed", "incomplete", "failed"]
PatchStatus = Literal["completed", "failed"]
CallId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_CALL_ID_CHARS),
    Field(description="Ties an output to its call."),
]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=2 * MAX_TOOL_NAME_CHARS)]
AnyList = Annotated[list[Any], AS_MANY_AS_ITEMS]
_Action = Annotated[dict[str, Any], Field(min_length=1)]
_JSON = Annotated[str, Field(description="JSON.")]


def _check_caller(caller: dict[str, Any]) -> dict[str, Any]:
    if caller.get("type") != "direct":
        raise PydanticCustomError("unsupported", _NO_PROGRAMS)
    return caller


def _require_array(value: Any) -> Any:
    if value is None:
        raise wrong_type("an array", value)
    return value


class Item(ClosedModel):
    id: str | None = Field(default=None, description="Left out: a new one.")
    created_by: Ignored = None


class DirectItem(Item):
    """A call that the model made itself, or the output of one."""

    is_async: Annotated[Any, refuse_value(_IN_ORDER), NO_VALUE] = Field(default=None, alias="async")
    caller: (
        Annotated[
            dict[str, Any],
            AfterValidator(_check_caller),
            WithJsonSchema(
                {
                    "type": "object",
                    "properties": {"type": {"type": "string", "const": "direct"}},
                    "required": ["type"],
                }
            ),
        ]
        | None
    ) = None
    call_id: CallId
    status: ItemStatus | None = None


class InputMessage(Item):
    """A message. One of the assistant has only text and refusals."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: InputContent
    status: ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class AssistantMessage(InputMessage):
    """A message of the assistant."""

    content: AnswerContent  # type: ignore[assignment]


class _NamedCall(DirectItem):
    name: ToolName
    namespace: Annotated[str, Field(max_length=MAX_TOOL_NAME_CHARS)] | None = None


class InputFunctionCall(_NamedCall):
    """A call of one of your functions, sent back."""

    type: Literal["function_call"]
    arguments: _JSON
    # SDKs store the parsed arguments beside the text, and send them back.
    parsed_arguments: Ignored = None


class InputCustomToolCall(_NamedCall):
    """A call of one of your tools that take text, sent back."""

    type: Literal["custom_tool_call"]
    input: LongText


class _Output(DirectItem):
    name: str | None = Field(default=None, description="Ignored: the call has it.")
    namespace: str | None = Field(default=None, description="Ignored.")
    output: InputContent


class FunctionCallOutput(_Output):
    """The output of one of your functions."""

    type: Literal["function_call_output"]


class CustomToolCallOutput(_Output):
    """The output of one of your tools that take text."""

    type: Literal["custom_tool_call_output"]


class _EnvironmentCall(DirectItem):
    # Where the commands ran does not matter any more.
    environment: dict[str, Any] | None = None


class InputShellCall(_EnvironmentCall):
    """A call of your shell, sent back."""

    type: Literal["shell_call"]
    action: _Action


class ExitOutcome(ClosedModel):
    """The end of a command that has ended by itself."""

    type: Literal["exit"]
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**32)]


class TimeoutOutcome(ClosedModel):
    """The end of a command that took too long."""

    type: Literal["timeout"]


class ShellChunk(ClosedModel):
    """The output of one command, and its end."""

    created_by: Ignored = None
    stdout: LongText | None = None
    stderr: LongText | None = None
    outcome: Annotated[ExitOutcome | TimeoutOutcome, OneOf(is_inline=True)]


class ShellCallOutput(DirectItem):
    """The output of the commands of your shell."""

    type: Literal["shell_call_output"]
    max_output_length: Annotated[int, Field(ge=0)] | None = None
    output: Annotated[list[ShellChunk], FAIL_FAST, AS_MANY_AS_ITEMS] = Field(description="One for each command.")


class InputLocalShellCall(_EnvironmentCall):
    """A command for your machine, sent back."""

    type: Literal["local_shell_call"]
    action: _Action


class LocalShellCallOutput(DirectItem):
    """The output of the command."""

    one_of: ClassVar[tuple[str, ...]] = ("call_id", "id")
    type: Literal["local_shell_call_output"]
    output: LongText
    # OpenAI's types have no `call_id` here: `id` is the id of the call, or of its item.
    call_id: CallId | None = None  # type: ignore[assignment]
    id: str | None = Field(default=None, description="Without a `call_id`: that of the call.")


class InputApplyPatchCall(_EnvironmentCall):
    """A change of a file, sent back."""

    type: Literal["apply_patch_call"]
    operation: _Action


class ApplyPatchCallOutput(DirectItem):
    """The outcome of the change."""

    type: Literal["apply_patch_call_output"]
    status: PatchStatus  # type: ignore[assignment]
    output: LongText | None = None


class InputComputerCall(DirectItem):
    """Actions for your computer, sent back."""

    one_of: ClassVar[tuple[str, ...]] = ("actions", "action")
    type: Literal["computer_call"]
    pending_safety_checks: AnyList | None = None
    actions: Annotated[list[dict[str, Any]], FAIL_FAST, AS_MANY_AS_ITEMS] | None = None
    action: dict[str, Any] | None = None


class SafetyCheck(ClosedModel):
    id: str
    code: str | None = None
    message: str | None = None


class Screenshot(ClosedModel):
    type: Literal["computer_screenshot"]
    file_id: Annotated[Any, refuse_value(_NO_SCREENSHOTS), NO_VALUE] = None
    image_url: ImageURL


class ComputerCallOutput(DirectItem):
    """The screenshot after the actions."""

    type: Literal["computer_call_output"]
    acknowledged_safety_checks: Annotated[list[SafetyCheck], FAIL_FAST, AS_MANY_AS_ITEMS] | None = None
    output: Screenshot


class _HostedCall(Item):
    status: HostedStatus | None = None


class InputWebSearchCall(_HostedCall):
    """A web search, sent back. The model reads it as a note."""

    type: Literal["web_search_call"]
    action: dict[str, Any] | None = Field(default=None, description="What was searched.")
    results: AnyList | None = None


class InputFileSearchCall(_HostedCall):
    """A search in files, sent back. The model reads it as a note."""

    type: Literal["file_search_call"]
    queries: Annotated[list[str], FAIL_FAST, limit_length(_MAX_LISTED_TEXTS)] | None = None
    results: AnyList | None = None


class InputCodeInterpreterCall(_HostedCall):
    """Code that was run, sent back. The model reads it as a note."""

    type: Literal["code_interpreter_call"]
    container_id: str | None = None
    code: LongText | None = None
    outputs: AnyList | None = None


class InputImageGenerationCall(_HostedCall):
    """A generated image, sent back. The model reads it as a note."""

    type: Literal["image_generation_call"]
    revised_prompt: LongText | None = None
    # They described the image, and do not matter any more.
    action: str | None = None
    background: str | None = None
    output_format: str | None = None
    quality: str | None = None
    size: str | None = None
    result: FileContent | None = Field(default=None, description="Base64.")


class _Search(Item):
    execution: Literal["client"] | None = None
    status: ItemStatus | None = None
    call_id: CallId


class InputToolSearchCall(_Search):
    """A search for tools, sent back."""

    type: Literal["tool_search_call"]
    arguments: Any = None


class ToolSearchOutput(_Search):
    """The tools that your search has found. The model can call them from now on."""

    type: Literal["tool_search_output"]
    tools: Annotated[
        Any,
        WithJsonSchema(
            {
                "type": "array",
                "items": {
                    NAMED: [["function", "FunctionTool"], ["custom", "CustomTool"], ["namespace", "NamespaceTool"]]
                },
                "maxItems": MAX_REQUEST_TOOLS,
            }
        ),
    ] = None


def _check_thought(kind: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if value not in (kind, "text"):
            raise PydanticCustomError("listed", "", {"expected": repr(kind), "value": value})
        return value

    return AfterValidator(check)


class SummaryText(ClosedModel):
    one_of: ClassVar[tuple[str, ...]] = ("type",)
    type: Annotated[
        Any, _check_thought("summary_text"), WithJsonSchema({"type": "string", "enum": ["summary_text", "text"]})
    ] = Field(default=None, validate_default=True)
    text: LongText


class ReasoningText(ClosedModel):
    one_of: ClassVar[tuple[str, ...]] = ("type",)
    type: Annotated[
        Any, _check_thought("reasoning_text"), WithJsonSchema({"type": "string", "enum": ["reasoning_text", "text"]})
    ] = Field(default=None, validate_default=True)
    text: LongText


class InputReasoning(Item):
    """Reasoning of an earlier response, sent back."""

    one_of: ClassVar[tuple[str, ...]] = ("summary",)
    type: Literal["reasoning"]
    status: ItemStatus | None = None
    summary: Annotated[list[SummaryText], FAIL_FAST, AS_MANY_AS_ITEMS, BeforeValidator(_require_array)] = Field(
        default=None, validate_default=True
    )
    content: Annotated[list[ReasoningText], FAIL_FAST, AS_MANY_AS_ITEMS] | None = None
    encrypted_content: str | None = Field(default=None, description="As an earlier response had it.")


class Compaction(Item):
    """A compacted conversation, from the route that compacts one or from a response. One of a response replaces all
    items before it.
    """

    type: Literal["compaction"]
    encrypted_content: Annotated[str, Field(max_length=4 * MAX_INPUT_TEXT_CHARS)]


class CompactionTrigger(Item):
    """The last item: compacts what comes before. The output is a `compaction` item, without an answer."""

    type: Literal["compaction_trigger"]


class ListedTool(ClosedModel):
    name: NonEmptyText = Field(description="The tool.")
    input_schema: dict[str, Any] = Field(description="A JSON Schema.")
    description: str | None = None
    annotations: dict[str, Any] | None = None


class InputMCPListTools(Item):
    """The tools of a server, sent back. They are not listed another time."""

    type: Literal["mcp_list_tools"]
    server_label: NonEmptyText = Field(description="The server.")
    tools: Annotated[list[ListedTool], FAIL_FAST, AS_MANY_AS_ITEMS]
    error: str | None = None


class _ServerCall(Item):
    server_label: NonEmptyText = Field(description="The server.")
    name: NonEmptyText = Field(description="The tool.")
    arguments: _JSON


class InputMCPCall(_ServerCall):
    """A call that the gateway has run, sent back."""

    type: Literal["mcp_call"]
    approval_request_id: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] | None = None
    output: str | None = None
    error: Any = Field(default=None, description="A text or an object, as an earlier response had it.")


class InputMCPApprovalRequest(_ServerCall):
    """A request for approval, sent back unchanged."""

    type: Literal["mcp_approval_request"]
    id: NonEmptyText


class MCPApprovalResponse(Item):
    """Your answer to a request for approval."""

    type: Literal["mcp_approval_response"]
    approval_request_id: NonEmptyText = Field(description="The id of the `mcp_approval_request`.")
    approve: bool = Field(description="True runs the call.")
    reason: LongText | None = Field(default=None, description="For the model, if you refuse.")


class ItemReference(ClosedModel):
    """Stands for a stored item."""

    type: Literal["item_reference"] | None = None
    id: NonEmptyText = Field(description="The id of a stored item.")


_MODELS: tuple[type[Item], ...] = (
    InputMessage,
    InputFunctionCall,
    FunctionCallOutput,
    InputCustomToolCall,
    CustomToolCallOutput,
    InputShellCall,
    ShellCallOutput,
    InputLocalShellCall,
    LocalShellCallOutput,
    InputApplyPatchCall,
    ApplyPatchCallOutput,
    InputComputerCall,
    ComputerCallOutput,
    InputWebSearchCall,
    InputFileSearchCall,
    InputCodeInterpreterCall,
    InputImageGenerationCall,
    InputToolSearchCall,
    ToolSearchOutput,
    InputReasoning,
    Compaction,
    CompactionTrigger,
    InputMCPListTools,
    InputMCPCall,
    InputMCPApprovalRequest,
    MCPApprovalResponse,
)
ITEM_MODELS: Mapping[str, type[Item]] = {kinds_of(model)[0]: model for model in _MODELS}
"""The items by their type, in the order in which a refusal lists them. `item_reference` is not one of them."""
