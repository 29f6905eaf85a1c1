"""Schemas of the action tools: the tools in a request, their calls, and the outputs of the calls."""

from __future__ import annotations

from typing import get_args

from holodeck.gateway.api.models.input_items import ItemStatus
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
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
from holodeck.gateway.wire.request.action_tools import (
    CHOICE_NAMES,
    PATCH_OPERATIONS,
)

ACTION_OUTPUT_TYPES = {
    "shell_call": "ShellCall",
    "local_shell_call": "LocalShellCall",
    "apply_patch_call": "ApplyPatchCall",
    "computer_call": "ComputerCall",
}


def action_reference_schema() -> Schema:
    """Build the schema of an action tool in a tool choice."""
    return body_of({"type": choice(CHOICE_NAMES)}, "One of the tools with a type of its own.", required=("type",))


def action_output_schemas() -> dict[str, Schema]:
    """Build the schemas of the calls in a response."""
    call_id = string("Send the output with it.")

    def call(kind: str, fields: dict[str, Schema], about: str, optional: tuple[str, ...] = ()) -> Schema:
        head = {"id": string(), "type": constant(kind), "status": choice(get_args(ItemStatus)), "call_id": call_id}
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
