"""Schemas of the action tools: the tools in a request, their calls, and the outputs of the calls."""

from __future__ import annotations

from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    body_of,
    choice,
    constant,
    integer,
    mapping,
    nullable,
    record_of,
    string,
)
from holodeck.gateway.wire.request.action_items import PATCH_STATUSES
from holodeck.gateway.wire.request.action_tools import (
    CHOICE_NAMES,
    PATCH_OPERATIONS,
)
from holodeck.gateway.wire.request.parsed_input import ITEM_STATUSES
from holodeck.lib.limits import MAX_CALL_ID_CHARS, MAX_IMAGE_URL_CHARS, MAX_INPUT_TEXT_CHARS

ACTION_INPUT_TYPES = {
    "shell_call": "InputShellCall",
    "shell_call_output": "ShellCallOutput",
    "local_shell_call": "InputLocalShellCall",
    "local_shell_call_output": "LocalShellCallOutput",
    "apply_patch_call": "InputApplyPatchCall",
    "apply_patch_call_output": "ApplyPatchCallOutput",
    "computer_call": "InputComputerCall",
    "computer_call_output": "ComputerCallOutput",
}
ACTION_OUTPUT_TYPES = {
    "shell_call": "ShellCall",
    "local_shell_call": "LocalShellCall",
    "apply_patch_call": "ApplyPatchCall",
    "computer_call": "ComputerCall",
}
_LONG_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)


def action_reference_schema() -> Schema:
    """Build the schema of an action tool in a tool choice."""
    return body_of({"type": choice(CHOICE_NAMES)}, "One of the tools with a type of its own.", required=("type",))


def action_input_schemas(direct: dict[str, Schema]) -> dict[str, Schema]:
    """Build the schemas of resent calls and their outputs. `direct`: the fields for the caller of a tool."""
    call_id = string("Ties an output to its call.", max_length=MAX_CALL_ID_CHARS, min_length=1)
    common = {
        "call_id": call_id,
        "status": choice(ITEM_STATUSES),
        "id": string("Left out: a new one."),
        "created_by": {"description": "Ignored."},
        **direct,
    }

    def item(kind: str, fields: dict[str, Schema], about: str, *required: str) -> Schema:
        return body_of({"type": constant(kind), **common, **fields}, about, required=("type", *required))

    def call(kind: str, key: str, about: str) -> Schema:
        fields = {key: mapping(minProperties=1), "environment": mapping()}
        return item(kind, fields, about, "call_id", key)

    computer = {"action": mapping(), "actions": array(mapping()), "pending_safety_checks": array({})}
    written = {"output": _LONG_TEXT, "id": string("Without a `call_id`: that of the call.", min_length=1)}
    about = "What the command has written."
    return {
        "InputShellCall": call("shell_call", "action", "A call of your shell, sent back."),
        "ShellCallOutput": item(
            "shell_call_output",
            {"output": array(_shell_chunk(), "One for each command."), "max_output_length": integer(minimum=0)},
            "What the commands of your shell have written.",
            *("call_id", "output"),
        ),
        "InputLocalShellCall": call("local_shell_call", "action", "A command for your machine, sent back."),
        "LocalShellCallOutput": any_of(
            item("local_shell_call_output", {"output": _LONG_TEXT}, about, "call_id", "output"),
            item("local_shell_call_output", written, about, "id", "output"),
        ),
        "InputApplyPatchCall": call("apply_patch_call", "operation", "A change of a file, sent back."),
        "ApplyPatchCallOutput": item(
            "apply_patch_call_output",
            {"status": choice(PATCH_STATUSES), "output": _LONG_TEXT},
            "Whether the change was made.",
            *("call_id", "status"),
        ),
        "InputComputerCall": body_of(
            {"type": constant("computer_call"), **common, **computer},
            "Actions for your computer, sent back.",
            required=("type", "call_id"),
            one_of=("actions", "action"),
        ),
        "ComputerCallOutput": item(
            "computer_call_output", _screenshot_fields(), "The screenshot after the actions.", "call_id", "output"
        ),
    }


def _shell_chunk() -> Schema:
    code = integer(minimum=-(2**31), maximum=2**32)
    outcome = any_of(
        body_of({"type": constant("exit"), "exit_code": code}, required=("type", "exit_code")),
        body_of({"type": constant("timeout")}, required=("type",)),
    )
    ignored = {"created_by": {"description": "Ignored."}}
    return body_of({"stdout": _LONG_TEXT, "stderr": _LONG_TEXT, "outcome": outcome, **ignored}, required=("outcome",))


def _screenshot_fields() -> dict[str, Schema]:
    check = body_of({"id": string(), "code": string(), "message": string()}, required=("id",))
    url = string(
        max_length=MAX_IMAGE_URL_CHARS, pattern="^(https?://|data:image/)", example="https://example.com/a.png"
    )
    screenshot = body_of({"type": constant("computer_screenshot"), "image_url": url}, required=("type", "image_url"))
    return {"output": screenshot, "acknowledged_safety_checks": array(check)}


def action_output_schemas() -> dict[str, Schema]:
    """Build the schemas of the calls in a response."""
    call_id = string("Send the output with it.")

    def call(kind: str, fields: dict[str, Schema], about: str, optional: tuple[str, ...] = ()) -> Schema:
        head = {"id": string(), "type": constant(kind), "status": choice(ITEM_STATUSES), "call_id": call_id}
        return record_of({**head, **fields}, about, optional=optional)

    commands = {
        "commands": array(string()),
        "timeout_ms": nullable(integer()),
        "max_output_length": nullable(integer()),
    }
    command = {
        "type": constant("exec"),
        "command": array(string()),
        "env": mapping(additionalProperties=string()),
        "timeout_ms": integer(),
        "user": string(),
        "working_directory": string(),
    }
    operation = {"type": choice(PATCH_OPERATIONS), "path": string(), "diff": string()}
    action = mapping("Such as `click`, with its coordinates.", required=["type"])
    return {
        "ShellCall": call("shell_call", {"action": record_of(commands)}, "Commands for your shell."),
        "LocalShellCall": call(
            "local_shell_call",
            {"action": record_of(command, optional=("timeout_ms", "user", "working_directory"))},
            "A command for your machine.",
        ),
        "ApplyPatchCall": call(
            "apply_patch_call", {"operation": record_of(operation, optional=("diff",))}, "A change of one file."
        ),
        "ComputerCall": call(
            "computer_call",
            {"action": action, "actions": array(action), "pending_safety_checks": array(mapping())},
            "Actions for your computer: `actions` for the tool `computer`, `action` for its older form.",
            ("action", "actions"),
        ),
    }
