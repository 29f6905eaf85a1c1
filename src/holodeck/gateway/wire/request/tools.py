"""`tools` and `tool_choice` of a request.

A tool is a function, a tool that takes text (`custom`), a namespace of both, a tool search of the client, an action
tool, a hosted tool, or a declared MCP server. Every other type is refused by its name. The model knows functions only,
so a tool of another form is a function for the model, and a `ClientToolAlias` says how the client knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal, NoReturn, cast, get_args

import orjson

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.tool_choice import (
    AllowedTools,
    ChoiceMode,
    MCPServerReference,
    NamedReference,
    TypeReference,
)
from holodeck.gateway.api.models.tools import (
    ACTION_MODELS,
    CustomTool,
    FunctionDefinition,
    FunctionTool,
    NamespaceTool,
    ToolContext,
    ToolSearchTool,
)
from holodeck.gateway.wire.request.action_tools import ACTION_TOOLS, CHOICE_NAMES, ActionTool, build_action_spec
from holodeck.gateway.wire.request.json_fields import (
    refuse,
    refuse_choice,
    refuse_long_array,
    refuse_missing,
    refuse_type,
)
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration, read_declaration
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.validation import read_body, require_kind
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MAX_REQUEST_TOOLS
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.tools.mcp.names import normalize_tool_name

_TEXT_ARGUMENT = "input"
_NAMESPACE_SEPARATOR = "__"
TOOL_SEARCH = "tool_search"
CHOICE_MODES = get_args(ChoiceMode)
_TOOL_TYPES = ("function", "custom", "namespace", "mcp", *ACTION_TOOLS)
_REFERENCE_KINDS = ("function", "custom", "mcp", *CHOICE_NAMES)
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
HOSTED_TOOL_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("web_search", "web_search_2025_08_26"), "web_search"),
    **dict.fromkeys(("web_search_preview", "web_search_preview_2025_03_11"), "web_search"),
    **{kind: kind for kind in ("file_search", "code_interpreter", "image_generation")},
}
"""The name of each hosted tool for the model and in `builtin_tools`, by its type in a request."""
_REFERENCE_MODELS: Mapping[str, type[APIModel]] = {
    "function": NamedReference,
    "custom": NamedReference,
    "mcp": MCPServerReference,
    **dict.fromkeys((*CHOICE_NAMES, *HOSTED_TOOL_TYPES), TypeReference),
}
NO_OPENAI_TOOLS = "This gateway runs none of OpenAI's own tools; an MCP server may do the same."
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
        """Return False for a call of an action tool whose arguments are no action. True for every other call."""
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


def read_tools(tools: object) -> RequestTools:
    """Read `tools`. Raises `BadRequestError`, which names the field."""
    if tools is None:
        return _NO_TOOLS
    functions: list[ToolSpec] = []
    declarations: list[MCPDeclaration] = []
    hosted: list[HostedTool] = []
    echo: list[Mapping[str, Any]] = []
    aliases: dict[str, ClientToolAlias] = {}
    context = ToolContext(schemas=RequestSchemas().budget)
    for where, entry in _list_tools(tools, "tools"):
        kind = _kind_of(entry, where)
        if kind == "function":
            functions.append(build_function_spec(read_body(FunctionTool, entry, where, context)))
            echo.append(echo_function(entry))
        elif isinstance(kind, str) and kind in HOSTED_TOOL_TYPES:
            hosted.append(_read_hosted_tool(entry, kind, where))
            echo.append(dict(entry))
        elif kind == "mcp":
            declarations.append(read_declaration(entry, where))
            echo.append(declarations[-1].echo)
        else:
            functions += _read_aliased_tools(entry, kind, where, aliases, context)
            echo.append(dict(entry))
    _check_unique_names([*(spec.name for spec in functions), *(tool.name for tool in hosted)], "function name")
    _check_unique_names([each.server_label for each in declarations], "server_label")
    return RequestTools(
        functions=tuple(functions),
        declarations=tuple(declarations),
        hosted=tuple(hosted),
        echo=tuple(echo),
        aliases=aliases,
    )


def read_found_tools(tools: object, path: str, aliases: dict[str, ClientToolAlias]) -> list[ToolSpec]:
    """Read the tools at `path` that a tool search of the client has found. Adds their aliases to `aliases`."""
    found: list[ToolSpec] = []
    context = ToolContext(schemas=RequestSchemas().budget, is_found=True)
    for where, entry in _list_tools(tools, path):
        kind = _kind_of(entry, where)
        if kind == "function":
            found.append(build_function_spec(read_body(FunctionTool, entry, where, context)))
        else:
            found += _read_aliased_tools(entry, kind, where, aliases, context)
    return found


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
    if value.get("type") == "allowed_tools":
        return _read_allowed_tools(value)
    found = _read_tool_reference(value, "tool_choice", (*_REFERENCE_KINDS, "allowed_tools"))
    echo = dict(value)
    return (
        RequestToolChoice(function=found, echo=echo)
        if isinstance(found, str)
        else RequestToolChoice(target=found, echo=echo)
    )


def model_tool_name(name: str, namespace: str | None) -> str:
    """Return the model's name for a tool of the client."""
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


def _list_tools(tools: object, path: str) -> list[tuple[str, Any]]:
    """Return the tools of a list, each with its path. Raises `BadRequestError` for what is no list, or too long."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        refuse_type(path, "an array", tools)
    if len(tools) > MAX_REQUEST_TOOLS:
        refuse_long_array(path, tools, MAX_REQUEST_TOOLS)
    return [(f"{path}[{index}]", entry) for index, entry in enumerate(tools)]


def _kind_of(entry: object, where: str) -> object:
    if not isinstance(entry, dict):
        refuse_type(where, "an object", entry)
    return entry.get("type")


def build_function_spec(tool: FunctionTool | FunctionDefinition) -> ToolSpec:
    """Build a function for the model."""
    return ToolSpec(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.parameters or _NO_PARAMETERS,
        strict=tool.strict or False,
    )


def _read_hosted_tool(entry: Mapping[str, Any], kind: str, where: str) -> HostedTool:
    settings = {key: value for key, value in entry.items() if key != "type" and value is not None}
    return HostedTool(name=HOSTED_TOOL_TYPES[kind], kind=kind, settings=settings, param=where)


def _read_aliased_tools(
    entry: Mapping[str, Any], kind: object, where: str, aliases: dict[str, ClientToolAlias], context: ToolContext
) -> list[ToolSpec]:
    """Read a tool that the model knows under another name or form than the client."""
    if kind == "custom":
        return [_build_custom_spec(read_body(CustomTool, entry, where, context), None, aliases)]
    if kind == TOOL_SEARCH and entry.get("execution") == "client" and not context.is_found:
        search = read_body(ToolSearchTool, entry, where, context)
        aliases[TOOL_SEARCH] = ClientToolAlias(name=TOOL_SEARCH, form="search")
        parameters = search.parameters or _NO_PARAMETERS
        return [ToolSpec(name=TOOL_SEARCH, description=search.description or "", parameters=parameters)]
    if isinstance(kind, str) and kind in ACTION_TOOLS and not context.is_found:
        spec = build_action_spec(read_body(ACTION_MODELS[kind], entry, where))
        aliases[spec.name] = ClientToolAlias(name=spec.name, form="action", action=ACTION_TOOLS[kind])
        return [spec]
    if kind is None:
        refuse_missing(f"{where}.type")
    if kind != "namespace":
        advice = _SEARCH_ADVICE if kind == TOOL_SEARCH else NO_OPENAI_TOOLS
        refuse_choice(f"{where}.type", kind, _TOOL_TYPES, advice=advice)
    return _build_namespace_specs(read_body(NamespaceTool, entry, where, context), aliases)


def _build_namespace_specs(namespace: NamespaceTool, aliases: dict[str, ClientToolAlias]) -> list[ToolSpec]:
    """Build the functions of a namespace. Its name becomes part of theirs, its description part of the first one's."""
    specs: list[ToolSpec] = []
    for tool in namespace.tools or ():
        if isinstance(tool, CustomTool):
            specs.append(_build_custom_spec(tool, namespace.name, aliases))
        elif isinstance(tool, FunctionTool):
            name = model_tool_name(tool.name, namespace.name)
            aliases[name] = ClientToolAlias(name=tool.name, namespace=namespace.name)
            specs.append(replace(build_function_spec(tool), name=name))
    if namespace.description and specs:
        beginning = model_tool_name("", namespace.name)
        about_all = f"About all tools whose names begin with {beginning!r}: {namespace.description}"
        specs[0] = replace(specs[0], description=f"{specs[0].description}\n\n{about_all}".strip())
    return specs


def _build_custom_spec(tool: CustomTool, namespace: str | None, aliases: dict[str, ClientToolAlias]) -> ToolSpec:
    """Build the function with one argument that a tool which takes text is for the model."""
    name = model_tool_name(tool.name, namespace)
    aliases[name] = ClientToolAlias(name=tool.name, namespace=namespace, form="custom")
    return ToolSpec(
        name=name,
        description=tool.description or "",
        parameters=text_tool_parameters(tool.format),
        strict=tool.strict or False,
    )


def _check_unique_names(names: list[str], field_name: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        refuse(f"Duplicate {field_name} in 'tools': {twice!r}.", "tools", "duplicate_value")


def _read_allowed_tools(value: Mapping[str, Any]) -> RequestToolChoice:
    choice = read_body(AllowedTools, value, "tool_choice")
    allowed = tuple(
        _read_tool_reference(entry, f"tool_choice.tools[{index}]", _REFERENCE_KINDS)
        for index, entry in enumerate(choice.tools)
    )
    if not allowed:
        refuse("Invalid 'tool_choice.tools': empty array.", "tool_choice.tools", "empty_array")
    mode = choice.mode or "auto"
    return RequestToolChoice(mode=mode, allowed=allowed, echo={**value, "mode": mode})


def _read_tool_reference(entry: object, where: str, kinds: tuple[str, ...]) -> str | tuple[str, str | None]:
    """Read the object at `where` that names a tool. `kinds`: the types that a refusal lists."""
    model = require_kind(entry, where, _REFERENCE_MODELS, listed=kinds)
    found = read_body(model, entry, where)
    if isinstance(found, NamedReference):
        return model_tool_name(found.name, found.namespace)
    if isinstance(found, MCPServerReference):
        return found.server_label, found.name
    kind: str = cast(TypeReference, found).type
    return CHOICE_NAMES.get(kind) or HOSTED_TOOL_TYPES[kind]
