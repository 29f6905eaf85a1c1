"""Action tools: the client tools `shell`, `local_shell`, `apply_patch` and `computer`, which the API itself defines.

A model knows each as a function whose arguments are the action. The client gets a call as an item of its own type, and
answers with an output item of its own type. Arguments that do not fit the action make no such item: the gateway answers
that call with an error, so that the model can correct it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import orjson

from holodeck.gateway.api.models.tools import ActionToolModel, ComputerUsePreviewTool, ShellTool
from holodeck.lib.json.schema import CompiledSchema, compile_schema
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec
from holodeck.tools.calls import BadArgumentsError, parse_arguments

Schema = dict[str, Any]
PATCH_OPERATIONS = ("create_file", "update_file", "delete_file")
MOUSE_BUTTONS = ("left", "right", "wheel", "back", "forward")


@record
class ActionTool:
    """One action tool: what the model is offered, and how its arguments are fields of an item."""

    kind: str
    """The type of the tool in a request."""
    name: str
    """The name of the function for the model."""
    item_type: str
    id_prefix: str
    description: str
    parameters: Mapping[str, Any]
    build_fields: Callable[[dict[str, Any]], dict[str, Any]]
    """Builds the fields of the item from arguments that fit `parameters`."""

    def find_fields(self, arguments: str) -> dict[str, Any] | None:
        """Return the fields of the item for the model's arguments. None: they do not fit."""
        try:
            values = _drop_nulls(parse_arguments(arguments))
        except BadArgumentsError:
            return None
        if _compile_parameters(self.kind).find_violations(values, limit=1):
            return None
        return self.build_fields(values)

    def build_spec(self, about: str = "") -> ToolSpec:
        """Return the function for the model. `about`: a sentence on the client's environment."""
        return ToolSpec(name=self.name, description=f"{self.description} {about}".strip(), parameters=self.parameters)


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


def _texts(about: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": about}


def _number(about: str, **limits: int) -> Schema:
    return {"type": "integer", "description": about, **limits}


_TIMEOUT = _number("Milliseconds after which it is stopped.", minimum=0)


def _build_shell_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    optional = {key: arguments.get(key) for key in ("timeout_ms", "max_output_length")}
    return {"action": {"commands": arguments["commands"], **optional}}


def _build_local_shell_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"action": {"type": "exec", **arguments, "env": arguments.get("env", {})}}


def _build_patch_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    operation = {"type": arguments["type"], "path": arguments["path"]}
    if operation["type"] != "delete_file":
        # Without a diff, a new file is empty, and a changed one stays as it is.
        operation["diff"] = arguments.get("diff", "")
    return {"operation": operation}


def _build_computer_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"pending_safety_checks": [], **arguments}


def _computer_action_schema() -> Schema:
    place = {"x": _number("Pixels from the left."), "y": _number("Pixels from the top.")}
    held = {"keys": _texts("Keys that are held meanwhile.")}
    variants = [
        ("click", {**place, "button": {"type": "string", "enum": list(MOUSE_BUTTONS)}, **held}, ("x", "y", "button")),
        ("double_click", {**place, **held}, ("x", "y")),
        (
            "drag",
            {"path": {"type": "array", "items": _object(place, "x", "y"), "description": "The way."}, **held},
            ("path",),
        ),
        ("keypress", {"keys": _texts("Keys that are pressed together.")}, ("keys",)),
        ("move", {**place, **held}, ("x", "y")),
        ("screenshot", {}, ()),
        (
            "scroll",
            {**place, "scroll_x": _number("To the right."), "scroll_y": _number("Down."), **held},
            ("x", "y", "scroll_x", "scroll_y"),
        ),
        ("type", {"text": _text("The text to type.")}, ("text",)),
        ("wait", {}, ()),
    ]
    kinds = [
        _object({"type": {"type": "string", "enum": [kind]}, **fields}, "type", *required)
        for kind, fields, required in variants
    ]
    return {"anyOf": kinds, "description": "An action of the mouse or the keyboard, a wait, or a look at the screen."}


SHELL = ActionTool(
    kind="shell",
    name="shell",
    item_type="shell_call",
    id_prefix="sh",
    description="Runs shell commands, one after the other, and returns the output of each.",
    parameters=_object(
        {
            "commands": _texts("The commands, in their order."),
            "timeout_ms": _TIMEOUT,
            "max_output_length": _number("Characters of output to return at most.", minimum=0),
        },
        "commands",
    ),
    build_fields=_build_shell_fields,
)
LOCAL_SHELL = ActionTool(
    kind="local_shell",
    name="local_shell",
    item_type="local_shell_call",
    id_prefix="lsh",
    description="Runs one command on the user's machine, without a shell, and returns its output.",
    parameters=_object(
        {
            "command": _texts('The program and its arguments, such as ["ls", "-l"].'),
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Environment variables to set.",
            },
            "working_directory": _text("The folder in which it runs."),
            "user": _text("The user as which it runs."),
            "timeout_ms": _TIMEOUT,
        },
        "command",
    ),
    build_fields=_build_local_shell_fields,
)
APPLY_PATCH = ActionTool(
    kind="apply_patch",
    name="apply_patch",
    item_type="apply_patch_call",
    id_prefix="apc",
    description="Creates, changes or deletes one file. Call it once for each file.",
    parameters=_object(
        {
            "type": {"type": "string", "enum": list(PATCH_OPERATIONS)},
            "path": _text("The file, relative to the root of the project."),
            "diff": _text(
                "Not for delete_file. For create_file: the whole content, each line after a '+'. For update_file: "
                "hunks that begin with a line '@@', with lines after ' ' (context), '-' (removed) or '+' (added), "
                "without line numbers or file headers."
            ),
        },
        "type",
        "path",
    ),
    build_fields=_build_patch_fields,
)
COMPUTER = ActionTool(
    kind="computer",
    name="computer",
    item_type="computer_call",
    id_prefix="cu",
    description="Controls a computer: carries out the actions in their order, and returns a screenshot.",
    parameters=_object(
        {"actions": {"type": "array", "items": _computer_action_schema(), "minItems": 1}},
        "actions",
    ),
    build_fields=_build_computer_fields,
)
COMPUTER_PREVIEW = ActionTool(
    kind="computer_use_preview",
    name="computer",
    item_type="computer_call",
    id_prefix="cu",
    description="Controls a computer: carries out one action, and returns a screenshot.",
    parameters=_object({"action": _computer_action_schema()}, "action"),
    build_fields=_build_computer_fields,
)
ACTION_TOOLS: Mapping[str, ActionTool] = {
    tool.kind: tool for tool in (SHELL, LOCAL_SHELL, APPLY_PATCH, COMPUTER, COMPUTER_PREVIEW)
}
"""By the type of the tool in a request."""
CHOICE_NAMES: Mapping[str, str] = {
    **{kind: tool.name for kind, tool in ACTION_TOOLS.items()},
    # One more name that `tool_choice` has for the same tool.
    "computer_use": COMPUTER.name,
}
"""The name of the function for the model, by the type in a tool choice."""


def build_action_spec(tool: ActionToolModel) -> ToolSpec:
    """Build the function for the model, with a sentence on the client's environment."""
    about = ""
    if isinstance(tool, ShellTool) and tool.environment is not None and tool.environment.skills:
        skills = [f"{skill.name} in {skill.path}: {skill.description}" for skill in tool.environment.skills]
        about = "\n".join(["There are these skills, which files describe:", *skills])
    elif isinstance(tool, ComputerUsePreviewTool):
        size = f"{tool.display_width} pixels wide and {tool.display_height} high"
        about = f"The display is {size} ({tool.environment})."
    return ACTION_TOOLS[tool.type].build_spec(about)


def action_to_arguments(values: Mapping[str, Any]) -> str:
    """Encode the action of an item as arguments of the function. Fields that are null are left out."""
    return orjson.dumps(_drop_nulls(values)).decode()


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _drop_nulls(each) for key, each in value.items() if each is not None}
    return [_drop_nulls(each) for each in value] if isinstance(value, list) else value


@cache
def _compile_parameters(kind: str) -> CompiledSchema:
    return compile_schema(ACTION_TOOLS[kind].parameters)
