"""`tools` and `tool_choice` of a request.

A tool is a function, a tool that takes text (`custom`), a namespace of both, a tool search of the client, an action
tool, a hosted tool, or a declared MCP server. Every other type is refused by its name. The model knows functions only,
so a tool of another form is a function for the model, and a `ClientToolAlias` says how the client knows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal, NoReturn, cast

import orjson

from holodeck.gateway.wire.request.action_tools import ACTION_TOOLS, CHOICE_NAMES, ActionTool, read_action_tool
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type, refuse_unsupported
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration, read_declaration
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MAX_REQUEST_TOOLS, MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.tools.mcp.names import normalize_tool_name

_TEXT_ARGUMENT = "input"
_NAMESPACE_SEPARATOR = "__"
TOOL_SEARCH = "tool_search"
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]+")
CHOICE_MODES = ("none", "auto", "required")
_TOOL_TYPES = ("function", "custom", "namespace", "mcp", *ACTION_TOOLS)
_REFERENCE_KINDS = ("function", "custom", "mcp", *CHOICE_NAMES)
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
HOSTED_TOOL_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("web_search", "web_search_2025_08_26"), "web_search"),
    **dict.fromkeys(("web_search_preview", "web_search_preview_2025_03_11"), "web_search"),
    **{kind: kind for kind in ("file_search", "code_interpreter", "image_generation")},
}
"""The name of each hosted tool for the model and in `builtin_tools`, by its type in a request."""
_NO_OPENAI_TOOLS = "This gateway runs none of OpenAI's own tools; an MCP server may do the same."
NOT_MAPPED = "No MCP tool is mapped to it here. The gateway's operator can do that, under 'builtin_tools'."
_CODEX_ADVICE = ' In Codex, write web_search = "disabled" into config.toml.'
_SEARCH_ADVICE = "Only a search that the client itself makes ('execution': 'client') is known here."
ServerNames = Callable[[str, str | None], Iterable[str]]
"""Maps a server's label, and one of its tools or None for all, to the model's names for them."""


@record
class ClientToolAlias:
    """The client's name and form of a tool for which the model has another name or form."""

    name: str
    namespace: str | None = None
    form: Literal["function", "custom", "search", "action"] = "function"
    """`custom` takes text instead of arguments; `search` finds more tools; `action` is one of the action tools."""
    action: ActionTool | None = None
    """The tool of the form `action`."""


@record
class HostedTool:
    """A tool that OpenAI's API runs itself. Here an MCP tool does, if the operator has mapped one to it."""

    name: str
    """One of the values of `HOSTED_TOOL_TYPES`."""
    kind: str
    """The type as the request has it."""
    settings: Mapping[str, Any]
    """All other fields. They are for the model: an MCP tool knows only its arguments."""
    param: str
    known_types: tuple[str, ...] = _TOOL_TYPES
    """Types of tools that the API of the request has here."""

    def refuse_unmapped(self, reason: str = NOT_MAPPED) -> NoReturn:
        """Refuse the tool because no MCP tool runs it."""
        advice = reason + (_CODEX_ADVICE if self.kind == "web_search" else "")
        refuse_choice(f"{self.param}.type", self.kind, self.known_types, advice=advice)


@record
class RequestTools:
    """The client's own functions, its MCP declarations, hosted tools, and all as the response repeats them."""

    functions: tuple[ToolSpec, ...] = ()
    declarations: tuple[MCPDeclaration, ...] = ()
    hosted: tuple[HostedTool, ...] = ()
    echo: tuple[Mapping[str, Any], ...] = ()
    aliases: Mapping[str, ClientToolAlias] = field(default_factory=dict)
    """By name, the functions that the client knows under another name or form."""

    def is_valid_action(self, call: FunctionCall) -> bool:
        """False for a call of an action tool whose arguments are no action. True for every other call."""
        alias = self.aliases.get(call.name)
        return alias is None or alias.action is None or alias.action.find_fields(call.arguments) is not None


@record
class RequestToolChoice:
    """A tool choice. `resolve` turns it into names, once the tools of the servers are known."""

    mode: Literal["auto", "required", "none"] = "auto"
    function: str | None = None
    """The function that must be called."""
    target: tuple[str, str | None] | None = None
    """The server, and its tool or None for any, that must be called."""
    allowed: tuple[str | tuple[str, str | None], ...] | None = None
    """Names of functions, and servers with a tool or None for all."""
    echo: str | Mapping[str, Any] = field(default="auto")

    def resolve(self, names: ServerNames) -> ToolChoice:
        """Resolve the choice for the engine. Raises `BadRequestError` when it forces a tool that does not exist."""
        if self.function is not None:
            return ToolChoice(mode="required", name=self.function)
        if self.target is not None:
            found = tuple(names(*self.target))
            if not found:
                message = f"Tool choice {self.target[1] or self.target[0]!r} not found in the tools of the request."
                refuse(message, "tool_choice", "invalid_value")
            if self.target[1] is not None:
                return ToolChoice(mode="required", name=found[0])
            return ToolChoice(mode="required", allowed=found)
        if self.allowed is None:
            return ToolChoice(mode=self.mode)
        known: list[str] = []
        for entry in self.allowed:
            known += [entry] if isinstance(entry, str) else names(*entry)
        return ToolChoice(mode=self.mode, allowed=tuple(dict.fromkeys(known)))


_NO_TOOLS = RequestTools()
_AUTO_CHOICE = RequestToolChoice()


def read_tools(fields: JSONFields) -> RequestTools:
    if fields.has_none_of(("tools",)):
        return _NO_TOOLS
    functions: list[ToolSpec] = []
    declarations: list[MCPDeclaration] = []
    hosted: list[HostedTool] = []
    echo: list[Mapping[str, Any]] = []
    aliases: dict[str, ClientToolAlias] = {}
    schemas = RequestSchemas()
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        kind = entry.value.get("type")
        if kind == "function":
            functions.append(_read_function_tool(entry, schemas))
            echo.append(echo_function(entry.value))
        elif isinstance(kind, str) and kind in HOSTED_TOOL_TYPES:
            hosted.append(_read_hosted_tool(entry, kind))
            echo.append(dict(entry.value))
        elif kind == "mcp":
            declarations.append(read_declaration(entry))
            echo.append(declarations[-1].echo)
        else:
            functions += _read_aliased_tools(entry, kind, aliases, schemas)
            echo.append(dict(entry.value))
    _check_unique_names([*(spec.name for spec in functions), *(tool.name for tool in hosted)], "function name")
    _check_unique_names([each.server_label for each in declarations], "server_label")
    return RequestTools(
        functions=tuple(functions),
        declarations=tuple(declarations),
        hosted=tuple(hosted),
        echo=tuple(echo),
        aliases=aliases,
    )


def read_found_tools(fields: JSONFields, aliases: dict[str, ClientToolAlias]) -> list[ToolSpec]:
    """Read the tools that a tool search of the client has found. Adds their aliases to `aliases`."""
    found: list[ToolSpec] = []
    schemas = RequestSchemas()
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        kind = entry.value.get("type")
        if kind == "function":
            found.append(_read_function_tool(entry, schemas, is_found=True))
        else:
            found += _read_aliased_tools(entry, kind, aliases, schemas, is_found=True)
    return found


def read_function_spec(fields: JSONFields, schemas: RequestSchemas) -> ToolSpec:
    """Read name, description, parameters and `strict` from the object that has them."""
    name = fields.require_text("name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    if not FUNCTION_NAME.fullmatch(name):
        where = fields.path_of("name")
        message = f"Invalid '{where}': string does not match pattern. Expected letters, digits, '_' and '-'."
        refuse(message, where, "invalid_value")
    return ToolSpec(
        name=name,
        description=fields.get_text("description") or "",
        parameters=schemas.read(fields, "parameters") or _NO_PARAMETERS,
        strict=fields.get_flag("strict") or False,
    )


def echo_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Build a function tool as the response repeats it: with all of its fields."""
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": tool.get("parameters"),
        "strict": tool.get("strict"),
    }


def read_tool_choice(value: object) -> RequestToolChoice:
    """Read `tool_choice` in each of its forms. Raises `BadRequestError`, which names the field."""
    if value is None:
        return _AUTO_CHOICE
    if isinstance(value, str):
        if value not in CHOICE_MODES:
            refuse_choice("tool_choice", value, CHOICE_MODES)
        return RequestToolChoice(mode=cast(Literal["auto", "required", "none"], value), echo=value)
    if not isinstance(value, dict):
        refuse_type("tool_choice", "a string or an object", value)
    fields = JSONFields(value, "tool_choice")
    kind = fields.require_text("type")
    if kind == "allowed_tools":
        return _read_allowed_tools(fields, value)
    found = _read_tool_reference(fields, kind, (*_REFERENCE_KINDS, "allowed_tools"))
    echo = dict(value)
    return (
        RequestToolChoice(function=found, echo=echo)
        if isinstance(found, str)
        else RequestToolChoice(target=found, echo=echo)
    )


def model_tool_name(name: str, namespace: str | None) -> str:
    """The model's name for a tool of the client."""
    if not namespace:
        return name
    return normalize_tool_name(f"{namespace.removesuffix(_NAMESPACE_SEPARATOR)}{_NAMESPACE_SEPARATOR}{name}")


def text_tool_parameters(form: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build the parameters of the function that represents a tool which takes text in this format."""
    description = "The whole input, as plain text."
    if form is not None and form.get("type") == "grammar":
        description += f" It follows this {form.get('syntax')} grammar:\n{form.get('definition')}"
    text = {"type": "string", "description": description}
    return {
        "type": "object",
        "properties": {_TEXT_ARGUMENT: text},
        "required": [_TEXT_ARGUMENT],
        "additionalProperties": False,
    }


def text_to_arguments(text: str) -> str:
    """Encode the text for a `custom` tool as arguments of its function."""
    return orjson.dumps({_TEXT_ARGUMENT: text}).decode()


def arguments_to_text(arguments: str) -> str:
    """Decode the text for a `custom` tool. Arguments in another form are the text themselves."""
    try:
        value = parse_json(arguments)
    except ValueError:
        return arguments
    text = value.get(_TEXT_ARGUMENT) if isinstance(value, dict) else value
    return text if isinstance(text, str) else arguments


def _read_function_tool(fields: JSONFields, schemas: RequestSchemas, *, is_found: bool = False) -> ToolSpec:
    fields.pop("type")
    if fields.get_flag("defer_loading") and not is_found:
        refuse_unsupported(fields.path_of("defer_loading"), "This gateway offers all tools at once.")
    if fields.get_flag("async"):
        refuse_unsupported(fields.path_of("async"), "Calls are answered in order.")
    fields.refuse_present("What a function returns is not checked here.", "output_schema")
    if (callers := fields.get_strings("allowed_callers")) not in (None, ["direct"]):
        refuse_choice(fields.path_of("allowed_callers"), callers, ("direct",))
    spec = read_function_spec(fields, schemas)
    fields.refuse_unread()
    return spec


def _read_hosted_tool(fields: JSONFields, kind: str) -> HostedTool:
    settings = {key: value for key, value in fields.value.items() if key != "type" and value is not None}
    return HostedTool(name=HOSTED_TOOL_TYPES[kind], kind=kind, settings=settings, param=fields.path)


def _read_aliased_tools(
    fields: JSONFields,
    kind: object,
    aliases: dict[str, ClientToolAlias],
    schemas: RequestSchemas,
    *,
    is_found: bool = False,
) -> list[ToolSpec]:
    """Read a tool that the model knows under another name or form than the client."""
    if kind == "custom":
        return [_read_custom_tool(fields, None, aliases, schemas, is_found=is_found)]
    if kind == TOOL_SEARCH and fields.value.get("execution") == "client" and not is_found:
        return [_read_search_tool(fields, aliases, schemas)]
    if isinstance(kind, str) and kind in ACTION_TOOLS and not is_found:
        spec = read_action_tool(fields, kind)
        aliases[spec.name] = ClientToolAlias(name=spec.name, form="action", action=ACTION_TOOLS[kind])
        return [spec]
    if kind != "namespace":
        _refuse_tool_type(fields, kind)
    return _read_namespace_tools(fields, aliases, schemas, is_found=is_found)


def _read_search_tool(fields: JSONFields, aliases: dict[str, ClientToolAlias], schemas: RequestSchemas) -> ToolSpec:
    fields.pop("type")
    fields.pop("execution")
    description, parameters = fields.get_text("description") or "", schemas.read(fields, "parameters") or _NO_PARAMETERS
    fields.refuse_unread()
    aliases[TOOL_SEARCH] = ClientToolAlias(name=TOOL_SEARCH, form="search")
    return ToolSpec(name=TOOL_SEARCH, description=description, parameters=parameters)


def _read_namespace_tools(
    fields: JSONFields, aliases: dict[str, ClientToolAlias], schemas: RequestSchemas, *, is_found: bool
) -> list[ToolSpec]:
    """Read the tools of a namespace. Its name becomes part of theirs, and its description part of the first one's."""
    fields.pop("type")
    namespace = fields.require_text("name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    description = fields.get_text("description")
    specs: list[ToolSpec] = []
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        kind = entry.value.get("type")
        if kind == "function":
            spec = _read_function_tool(entry, schemas, is_found=is_found)
            name = model_tool_name(spec.name, namespace)
            aliases[name] = ClientToolAlias(name=spec.name, namespace=namespace)
            specs.append(replace(spec, name=name))
        elif kind == "custom":
            specs.append(_read_custom_tool(entry, namespace, aliases, schemas, is_found=is_found))
        else:
            entry.refuse_missing("type") if kind is None else refuse_choice(
                entry.path_of("type"), kind, ("function", "custom")
            )
    fields.refuse_unread()
    if description and specs:
        about_all = f"About all tools whose names begin with {model_tool_name('', namespace)!r}: {description}"
        specs[0] = replace(specs[0], description=f"{specs[0].description}\n\n{about_all}".strip())
    return specs


def _read_custom_tool(
    fields: JSONFields,
    namespace: str | None,
    aliases: dict[str, ClientToolAlias],
    schemas: RequestSchemas,
    *,
    is_found: bool,
) -> ToolSpec:
    """Read a tool that takes text. For the model it is a function with one argument."""
    fields.pop("type")
    form = fields.get_mapping("format")
    if fields.get_flag("defer_loading") and not is_found:
        refuse_unsupported(fields.path_of("defer_loading"), "This gateway offers all tools at once.")
    spec = read_function_spec(fields, schemas)
    fields.refuse_unread()
    name = model_tool_name(spec.name, namespace)
    aliases[name] = ClientToolAlias(name=spec.name, namespace=namespace, form="custom")
    return replace(spec, name=name, parameters=text_tool_parameters(form))


def _refuse_tool_type(fields: JSONFields, kind: object) -> NoReturn:
    if kind is None:
        fields.refuse_missing("type")
    refuse_choice(
        fields.path_of("type"), kind, _TOOL_TYPES, advice=_SEARCH_ADVICE if kind == TOOL_SEARCH else _NO_OPENAI_TOOLS
    )


def _check_unique_names(names: list[str], field_name: str) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        refuse(f"Duplicate {field_name} in 'tools': {twice!r}.", "tools", "duplicate_value")


def _read_allowed_tools(fields: JSONFields, value: Mapping[str, Any]) -> RequestToolChoice:
    mode = fields.get_choice("mode", CHOICE_MODES) or "auto"
    if not fields.has("tools"):
        fields.refuse_missing("tools")
    allowed = []
    for entry in fields.iter_objects("tools", max_length=MAX_REQUEST_TOOLS):
        allowed.append(_read_tool_reference(entry, entry.require_text("type"), _REFERENCE_KINDS))
    fields.refuse_unread()
    if not allowed:
        refuse("Invalid 'tool_choice.tools': empty array.", "tool_choice.tools", "empty_array")
    mode = cast(Literal["auto", "required", "none"], mode)
    return RequestToolChoice(mode=mode, allowed=tuple(allowed), echo={**value, "mode": mode})


def _read_tool_reference(fields: JSONFields, kind: str, kinds: tuple[str, ...]) -> str | tuple[str, str | None]:
    if kind in ("function", "custom"):
        name = fields.require_text("name", may_be_empty=False)
        found: str | tuple[str, str | None] = model_tool_name(name, fields.get_text("namespace"))
    elif kind == "mcp":
        found = (fields.require_text("server_label", may_be_empty=False), fields.get_text("name"))
    elif kind in CHOICE_NAMES:
        found = CHOICE_NAMES[kind]
    elif kind in HOSTED_TOOL_TYPES:
        found = HOSTED_TOOL_TYPES[kind]
    else:
        refuse_choice(fields.path_of("type"), kind, kinds)
    fields.refuse_unread()
    return found
