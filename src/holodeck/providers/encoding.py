"""Encoding of requests that the dialects share: content parts, tool results, tools, options and formats.

Images, sounds and files are sent as such where a dialect can carry them, and otherwise described in text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from holodeck.lib.errors import ModelError
from holodeck.lib.record import build_getter, record
from holodeck.models.generation import OPTIONS, APIFields, ModelAPI, Option
from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    FileData,
    FunctionCallOutput,
    ImageContent,
    ImageLink,
    Part,
    TextContent,
)
from holodeck.models.model_io import ModelRequest, ToolSpec, find_unsupported

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that every model with image input accepts."""
NO_OUTPUT = "(The tool gave no output.)"
_KIB = 1024
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
# Characters of a format's name: the limit of the APIs.
_MAX_NAME_CHARS = 64


@record
class Base64Data:
    """Bytes as base64, with their media type."""

    mime_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data}"


def find_image(part: Part) -> Base64Data | None:
    """Return the image of a part that contains the bytes of one, in any form; else None."""
    found: Base64Data | None = None
    if isinstance(part, ImageContent):
        found = Base64Data(mime_type=_normalize_mime_type(part.mime_type), data=part.data)
    elif isinstance(part, BinaryContent) and part.data and _normalize_mime_type(part.mime_type or "") in IMAGE_TYPES:
        found = Base64Data(mime_type=_normalize_mime_type(part.mime_type or ""), data=b64encode(part.data).decode())
    elif isinstance(part, ImageLink):
        found = parse_data_url(part.url)
    return found if found and found.mime_type in IMAGE_TYPES else None


def find_image_url(part: Part) -> str | None:
    """Return the URL of an image, for dialects that accept URLs: its address, or a `data:` URL; else None."""
    found = find_image(part)
    if found:
        return found.url
    return part.url if isinstance(part, ImageLink) and not part.url.startswith("data:") else None


def parse_data_url(url: str) -> Base64Data | None:
    """Return the data of a base64 `data:` URL, or None for another URL."""
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return None
    return Base64Data(mime_type=_normalize_mime_type(head.removeprefix("data:")), data=data)


def describe_part(part: Part) -> str:
    """Return a part as text: the text itself, or a description of content that the model cannot receive."""
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, ImageContent):
        return f"[An image ({_size_text(part.data)} of {part.mime_type}) that this model cannot be shown.]"
    if isinstance(part, AudioContent):
        return f"[A sound ({_size_text(part.data)} of {part.mime_type}) that this model cannot be played.]"
    if isinstance(part, BinaryContent):
        return _describe_binary(part)
    where = "with its bytes inside" if part.url.startswith("data:") else f"at {part.url}"
    if isinstance(part, FileData):
        return f"[A file {_quote_name(part.filename)}{where}, which this model cannot be shown.]"
    return f"[An image {where}, which this model cannot be shown.]"


def describe_parts(parts: Iterable[Part]) -> str:
    """Return parts as text, one per line."""
    return "\n".join(describe_part(part) for part in parts)


def output_text(output: FunctionCallOutput, text: str) -> str:
    """Return the text of a tool result, marked if it failed or is empty, for dialects without a field for that."""
    text = text or NO_OUTPUT
    return f"Error: {text}" if output.is_error and not text.lower().startswith("error") else text


def select_tools(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the allowed tools, for dialects that cannot restrict the choice: the others are not sent."""
    allowed = request.tool_choice.allowed
    if not allowed or request.tool_choice.name is not None:
        return request.tools
    return tuple(tool for tool in request.tools if tool.name in allowed)


def require_supported(request: ModelRequest, api: APIFields, provider: str) -> None:
    """Raise `ModelError` for a request with a field that the API of its model does not have."""
    name = find_unsupported(request, api)
    if name is not None:
        message = f"The models of provider '{provider}' have no '{name}'. Leave it out."
        raise ModelError(message, provider=provider, status=400, code="unsupported_parameter")


_Target = tuple[str, str, Callable[[Any], Any] | None]
"""A member of a body, the key in that, and what returns the value to send."""


class OptionEncoder:
    """Writes the options of requests into bodies for one API, under the names that the table of options has for it.

    `converted`: functions that return the value to send, by option; None is not sent. `renamed`: other names.
    """

    def __init__(
        self,
        api: ModelAPI,
        *,
        converted: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        def describe(sent: list[Option]) -> tuple[Callable[[ModelRequest], tuple[Any, ...]], tuple[_Target, ...]]:
            targets = (
                (
                    *renamed.get(option.name, option.sent_as[api]).partition(".")[::2],
                    converted.get(option.name) or _find_conversion(option, api),
                )
                for option in sent
            )
            return build_getter([option.name for option in sent]), tuple(targets)

        sent = [option for option in OPTIONS if api in option.sent_as]
        self._others = describe([option for option in sent if not option.is_with_tools])
        self._with_tools = describe([option for option in sent if option.is_with_tools])

    def write(self, request: ModelRequest, body: dict[str, Any], *, with_tools: bool = False) -> None:
        """Add the options that are set: those that are sent only beside tools, or all others."""
        values_of, targets = self._with_tools if with_tools else self._others
        for value, (member, key, convert) in zip(values_of(request), targets, strict=True):
            if value is None or value == ():
                continue
            sent = value if convert is None else convert(value)
            if key and sent is not None:
                body.setdefault(member, {})[key] = sent
            elif sent is not None:
                body[member] = sent


def _find_conversion(option: Option, api: ModelAPI) -> Callable[[Any], Any] | None:
    if api in option.values_in:
        return option.values_in[api].get
    if api in option.sent_values:
        return option.sent_values[api].get
    if option.is_zero_left_out:
        return lambda value: value or None
    return list if option.values.kind == "text_or_texts" else None


def build_json_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `json_schema` format with the name that the APIs require; strict if the schema allows it."""
    title = schema.get("title")
    name = _NOT_IN_A_NAME.sub("_", title)[:_MAX_NAME_CHARS] if isinstance(title, str) else ""
    return {"name": name or "answer", "schema": dict(schema), "strict": is_strict(schema)}


def is_strict(schema: Any) -> bool:
    """Return whether strict modes accept a schema: every object closed, every property required."""
    if isinstance(schema, list | tuple):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or set(schema.get("required", ())) != set(properties):
            return False
    return all(is_strict(part) for part in schema.values())


def _describe_binary(part: BinaryContent) -> str:
    kind = part.mime_type or "unknown type"
    where = f" at {part.uri}" if part.uri else ""
    if part.is_link or not part.data:
        about = f": {part.description}" if part.description else ""
        return f"[A link to a resource {_quote_name(part.name)}({kind}){where}{about}]"
    size = f"{len(part.data)} bytes of {kind}"
    return f"[A resource {_quote_name(part.name)}({size}){where} that this model cannot be shown.]"


def _quote_name(name: str | None) -> str:
    return f"'{name}' " if name else ""


def _normalize_mime_type(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def _size_text(data: str) -> str:
    return f"{max(1, len(data) * 3 // 4 // _KIB)} KiB"
