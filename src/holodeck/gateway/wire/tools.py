"""`tools` and `tool_choice` of a request. A kind of tool that this gateway does not have is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal, NoReturn, cast

from holodeck.gateway.wire.fields import Fields, not_one_of, refuse, wrong_type
from holodeck.gateway.wire.guises import SEARCH, Guise, model_name, text_parameters
from holodeck.gateway.wire.mcp_declarations import MCPDeclaration, read_declaration
from holodeck.gateway.wire.request_schemas import RequestSchemas
from holodeck.lib.limits import MAX_REQUEST_TOOLS, MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.models.exchange import ToolChoice, ToolSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MODES = ("none", "auto", "required")
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}

_NONE_OF_OPENAI = "This gateway runs none of OpenAI's own tools; an MCP server may do the same."
_ADVICE = {
    "": _NONE_OF_OPENAI,
    "web_search": f'{_NONE_OF_OPENAI} In Codex, write web_search = "disabled" into config.toml.',
    SEARCH: "Only a search that the client itself makes ('execution': 'client') is known here.",
}
"""What to do about a kind of tool that is not here."""

ServerNames = Callable[[str, str | None], Iterable[str]]
"""From a server's label, and one of its tools or None for all, to the names that the model knows."""


@record
class Tools:
    """The client's own functions, the MCP servers that it asks for, and both as they are shown again."""

    functions: tuple[ToolSpec, ...] = ()
    declarations: tuple[MCPDeclaration, ...] = ()
    echo: tuple[Mapping[str, Any], ...] = ()
    guises: Mapping[str, Guise] = field(default_factory=dict)
    """How the client knows those functions, by their names, that it knows otherwise than the model."""


@record
class Choice:
    """A tool choice before the tools of the servers are known."""

    mode: Literal["auto", "required", "none"] = "auto"
    function: str | None = None
    """The one function that must be called."""
    server: tuple[str, str | None] | None = None
    """The server, and perhaps the tool of it, that must be called."""
    allowed: tuple[str | tuple[str, str | None], ...] | None = None
    """Names of functions, and servers with a tool or with None for all of theirs."""
    echo: str | Mapping[str, Any] = field(default="auto")

    def resolved(self, names: ServerNames) -> ToolChoice:
        """The choice for the engine. Raises `BadRequestError` when it forces a tool that nobody has."""
        if self.function is not None:
            return ToolChoice(mode="required", name=self.function)
        if self.server is not None:
            found = tuple(names(*self.server))
            if not found:
                message = f"Tool choice {self.server[1] or self.server[0]!r} not found in the tools of the request."
                refuse(message, "tool_choice", "invalid_value")
            if self.server[1] is not None:
                return ToolChoice(mode="required", name=found[0])
            return ToolChoice(mode="required", allowed=found)
        if self.allowed is None:
            return ToolChoice(mode=self.mode)
        known: list[str] = []
        for entry in self.allowed:
            known += [entry] if isinstance(entry, str) else names(*entry)
        return ToolChoice(mode=self.mode, allowed=tuple(dict.fromkeys(known)))


_NO_TOOLS = Tools()
_FREE = Choice()


def read_tools(fields: Fields) -> Tools:
    if fields.lacks(("tools",)):
        return _NO_TOOLS
    functions: list[ToolSpec] = []
    declarations: list[MCPDeclaration] = []
    echo: list[Mapping[str, Any]] = []
    guises: dict[str, Guise] = {}
    schemas = RequestSchemas()
    for entry in fields.objects("tools", longest=MAX_REQUEST_TOOLS):
        kind = entry.value.get("type")
        if kind == "function":
            functions.append(_function(entry, schemas))
            echo.append(echo_function(entry.value))
        elif kind == "mcp":
            declarations.append(read_declaration(entry))
            echo.append(declarations[-1].echo)
        else:
            functions += _disguised(entry, kind, guises, schemas)
            echo.append(dict(entry.value))
    _unique([spec.name for spec in functions], "function name")
    _unique([each.server_label for each in declarations], "server_label")
    return Tools(functions=tuple(functions), declarations=tuple(declarations), echo=tuple(echo), guises=guises)


def read_found(fields: Fields, guises: dict[str, Guise]) -> list[ToolSpec]:
    """Tools of the client that a search has found."""
    found: list[ToolSpec] = []
    schemas = RequestSchemas()
    for entry in fields.objects("tools", longest=MAX_REQUEST_TOOLS):
        kind = entry.value.get("type")
        if kind == "function":
            found.append(_function(entry, schemas, is_found=True))
        else:
            found += _disguised(entry, kind, guises, schemas, is_found=True)
    return found


def _disguised(
    fields: Fields, kind: object, guises: dict[str, Guise], schemas: RequestSchemas, *, is_found: bool = False
) -> list[ToolSpec]:
    """Tools that the model knows otherwise than the client."""
    if kind == "custom":
        return [_custom(fields, None, guises, schemas, is_found=is_found)]
    if kind == SEARCH and fields.value.get("execution") == "client" and not is_found:
        return [_search(fields, guises, schemas)]
    if kind != "namespace":
        _no_such_kind(fields, kind)
    return _namespace(fields, guises, schemas, is_found=is_found)


def _search(fields: Fields, guises: dict[str, Guise], schemas: RequestSchemas) -> ToolSpec:
    fields.take("type")
    fields.take("execution")
    about, parameters = fields.text("description") or "", schemas.read(fields, "parameters") or _NO_PARAMETERS
    fields.done()
    guises[SEARCH] = Guise(name=SEARCH, form="search")
    return ToolSpec(name=SEARCH, description=about, parameters=parameters)


def _namespace(fields: Fields, guises: dict[str, Guise], schemas: RequestSchemas, *, is_found: bool) -> list[ToolSpec]:
    """The tools of a namespace: its name is part of theirs, and the first says what is said of all."""
    fields.take("type")
    namespace = fields.required("name", longest=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    about = fields.text("description")
    specs: list[ToolSpec] = []
    for entry in fields.objects("tools", longest=MAX_REQUEST_TOOLS):
        kind = entry.value.get("type")
        if kind == "function":
            given = _function(entry, schemas, is_found=is_found)
            name = model_name(given.name, namespace)
            guises[name] = Guise(name=given.name, namespace=namespace)
            specs.append(replace(given, name=name))
        elif kind == "custom":
            specs.append(_custom(entry, namespace, guises, schemas, is_found=is_found))
        else:
            entry.missing("type") if kind is None else not_one_of(entry.at("type"), kind, ("function", "custom"))
    fields.done()
    if about and specs:
        told = f"About all tools whose names begin with {model_name('', namespace)!r}: {about}"
        specs[0] = replace(specs[0], description=f"{specs[0].description}\n\n{told}".strip())
    return specs


def _custom(
    fields: Fields, namespace: str | None, guises: dict[str, Guise], schemas: RequestSchemas, *, is_found: bool
) -> ToolSpec:
    """A tool that takes text: for the model, a function with one argument."""
    fields.take("type")
    form = fields.mapping("format")
    if fields.flag("defer_loading") and not is_found:
        _unsupported(fields, "defer_loading", "This gateway offers all tools at once.")
    given = function_spec(fields, schemas)
    fields.done()
    name = model_name(given.name, namespace)
    guises[name] = Guise(name=given.name, namespace=namespace, form="custom")
    return replace(given, name=name, parameters=text_parameters(form))


def _no_such_kind(fields: Fields, kind: object) -> NoReturn:
    if kind is None:
        fields.missing("type")
    advice = _ADVICE.get(kind, _ADVICE[""]) if isinstance(kind, str) else ""
    not_one_of(fields.at("type"), kind, ("function", "custom", "namespace", "mcp"), advice=advice)


def echo_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function tool as it is shown again: with all of its fields."""
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": tool.get("parameters"),
        "strict": tool.get("strict"),
    }


def function_spec(fields: Fields, schemas: RequestSchemas) -> ToolSpec:
    """Name, description, parameters and `strict`, wherever the dialect keeps them."""
    name = fields.required("name", longest=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    if not _NAME.fullmatch(name):
        where = fields.at("name")
        message = f"Invalid '{where}': string does not match pattern. Expected letters, digits, '_' and '-'."
        refuse(message, where, "invalid_value")
    return ToolSpec(
        name=name,
        description=fields.text("description") or "",
        parameters=schemas.read(fields, "parameters") or _NO_PARAMETERS,
        strict=fields.flag("strict") or False,
    )


def read_choice(value: object) -> Choice:
    """`tool_choice` in each of its forms."""
    if value is None:
        return _FREE
    if isinstance(value, str):
        if value not in _MODES:
            not_one_of("tool_choice", value, _MODES)
        return Choice(mode=cast(Literal["auto", "required", "none"], value), echo=value)
    if not isinstance(value, dict):
        wrong_type("tool_choice", "a string or an object", value)
    fields = Fields(value, "tool_choice")
    kind = fields.required("type")
    if kind == "allowed_tools":
        return _allowed(fields, value)
    found = _named(fields, kind, ("function", "custom", "mcp", "allowed_tools"))
    echo = dict(value)
    return Choice(function=found, echo=echo) if isinstance(found, str) else Choice(server=found, echo=echo)


def _allowed(fields: Fields, value: Mapping[str, Any]) -> Choice:
    mode = fields.choice("mode", _MODES) or "auto"
    if not fields.has("tools"):
        fields.missing("tools")
    allowed = []
    for entry in fields.objects("tools", longest=MAX_REQUEST_TOOLS):
        allowed.append(_named(entry, entry.required("type"), ("function", "custom", "mcp")))
    fields.done()
    if not allowed:
        refuse("Invalid 'tool_choice.tools': empty array.", "tool_choice.tools", "empty_array")
    mode = cast(Literal["auto", "required", "none"], mode)
    return Choice(mode=mode, allowed=tuple(allowed), echo={**value, "mode": mode})


def _named(fields: Fields, kind: str, kinds: tuple[str, ...]) -> str | tuple[str, str | None]:
    if kind in ("function", "custom"):
        name = fields.required("name", may_be_empty=False)
        found: str | tuple[str, str | None] = model_name(name, fields.text("namespace"))
    elif kind == "mcp":
        found = (fields.required("server_label", may_be_empty=False), fields.text("name"))
    else:
        not_one_of(fields.at("type"), kind, kinds)
    fields.done()
    return found


def _function(fields: Fields, schemas: RequestSchemas, *, is_found: bool = False) -> ToolSpec:
    fields.take("type")
    if fields.flag("defer_loading") and not is_found:
        _unsupported(fields, "defer_loading", "This gateway offers all tools at once.")
    if fields.flag("async"):
        _unsupported(fields, "async", "Calls are answered in order.")
    fields.refuse_given("What a function returns is not checked here.", "output_schema")
    if (callers := fields.strings("allowed_callers")) not in (None, ["direct"]):
        not_one_of(fields.at("allowed_callers"), callers, ("direct",))
    spec = function_spec(fields, schemas)
    fields.done()
    return spec


def _unsupported(fields: Fields, key: str, reason: str) -> NoReturn:
    refuse(f"Unsupported parameter: '{fields.at(key)}'. {reason}", fields.at(key), "unsupported_parameter")


def _unique(names: list[str], what: str) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        refuse(f"Duplicate {what} in 'tools': {twice!r}.", "tools", "duplicate_value")
