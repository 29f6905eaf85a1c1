"""Client tools that Anthropic's API defines: `bash`, the text editor, `computer` and `memory`, by their dated types.

An Anthropic model gets such a tool as the client has sent it, because it knows the tool. Every other model gets a
function of the same name, whose arguments are the input that the API documents. The client gets `tool_use` blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holodeck.gateway.api.models.tools import FUNCTION_NAME
from holodeck.gateway.wire.messages.content_blocks import CACHE_FIELD
from holodeck.gateway.wire.messages.field_table import ALL_AT_ONCE
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse_choice, refuse_unsupported
from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec

Schema = dict[str, Any]
NATIVE_TYPE = re.compile(r"(bash|text_editor|computer|memory)_[0-9]{8}")
"""The types of the tools: a name, and the day of the version."""
MAX_DISPLAY_PIXELS = 100_000
_COMPUTER_ACTIONS = (
    *("screenshot", "left_click", "right_click", "middle_click", "double_click", "triple_click", "mouse_move"),
    *("left_click_drag", "left_mouse_down", "left_mouse_up", "scroll", "type", "key", "hold_key", "wait"),
    *("cursor_position", "zoom"),
)


@record
class _ClientTool:
    """The description of the tool for models that do not know it."""

    description: str
    parameters: Mapping[str, Any]


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


def _number(about: str) -> Schema:
    return {"type": "integer", "description": about}


def _choice(about: str, *values: str) -> Schema:
    return {"type": "string", "enum": list(values), "description": about}


def _numbers(about: str) -> Schema:
    return {"type": "array", "items": {"type": "integer"}, "description": about}


_FILE_EDITS: dict[str, Schema] = {
    "path": _text("The file or folder."),
    "view_range": _numbers("For view: the first and the last line; -1 is the end of the file."),
    "file_text": _text("For create: the whole content."),
    "old_str": _text("For str_replace: the text to replace. It is in the file exactly once."),
    "new_str": _text("For str_replace: the text instead."),
    "insert_line": _number("For insert: the line after which the text comes; 0 is the beginning."),
    "insert_text": _text("For insert: the text."),
}
_TOOLS: Mapping[str, _ClientTool] = {
    "bash": _ClientTool(
        description="Runs a command in a bash session that goes on between calls, and returns its output.",
        parameters=_object(
            {
                "command": _text("The command. Left out only for a restart."),
                "restart": {"type": "boolean", "description": "True: start a new session."},
            }
        ),
    ),
    "text_editor": _ClientTool(
        description="Shows, creates and changes files.",
        parameters=_object(
            {
                "command": _choice("What to do.", "view", "create", "str_replace", "insert"),
                **_FILE_EDITS,
            },
            "command",
            "path",
        ),
    ),
    "computer": _ClientTool(
        description="Controls a computer by its mouse and keyboard, and takes screenshots.",
        parameters=_object(
            {
                "action": _choice("What to do.", *_COMPUTER_ACTIONS),
                "coordinate": _numbers("Pixels from the left and from the top."),
                "start_coordinate": _numbers("For left_click_drag: where it begins."),
                "text": _text("For type: the text. For key and hold_key: the keys, such as 'ctrl+s'."),
                "scroll_direction": _choice("For scroll.", "up", "down", "left", "right"),
                "scroll_amount": _number("For scroll: how many clicks of the wheel."),
                "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
                "region": _numbers("For zoom: the left, top, right and bottom edge, in pixels."),
            },
            "action",
        ),
    ),
    "memory": _ClientTool(
        description="Stores what is to be remembered in files below /memories, and reads it. Look there first.",
        parameters=_object(
            {
                "command": _choice("What to do.", "view", "create", "str_replace", "insert", "delete", "rename"),
                **_FILE_EDITS,
                "old_path": _text("For rename: the path now."),
                "new_path": _text("For rename: the path then."),
            },
            "command",
        ),
    ),
}


def read_client_tool(entry: JSONFields, kind: str) -> ToolSpec:
    """Read a tool whose type matches `NATIVE_TYPE`. Raises `BadRequestError`, which names the field."""
    family = kind.rpartition("_")[0]
    tool, about = _TOOLS[family], ""
    name = entry.require_text("name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    if not FUNCTION_NAME.fullmatch(name):
        refuse_choice(entry.path_of("name"), name, (family,))
    refuse_deferred(entry)
    if family == "computer":
        width, height = (
            entry.get_integer(key, minimum=1, maximum=MAX_DISPLAY_PIXELS) or entry.refuse_missing(key)
            for key in ("display_width_px", "display_height_px")
        )
        about = f" The display is {width} pixels wide and {height} high."
        entry.get_integer("display_number", minimum=0)
        entry.get_flag("enable_zoom")
    elif family == "text_editor":
        entry.get_integer("max_characters", minimum=1)
    entry.get_flag("strict")
    entry.get_array("input_examples")
    mark = entry.get_cache_mark(CACHE_FIELD)
    entry.refuse_unread()
    native = {key: value for key, value in entry.value.items() if key != CACHE_FIELD and value is not None}
    return ToolSpec(
        name=name,
        description=tool.description + about,
        parameters=tool.parameters,
        cache_mark=mark,
        native={"anthropic": native},
    )


def refuse_deferred(entry: JSONFields) -> None:
    """Refuse a tool that is to be loaded later, or that programs may call."""
    if entry.get_flag("defer_loading"):
        refuse_unsupported(entry.path_of("defer_loading"), ALL_AT_ONCE)
    if (callers := entry.get_strings("allowed_callers")) not in (None, ["direct"]):
        refuse_choice(entry.path_of("allowed_callers"), callers, ("direct",))
