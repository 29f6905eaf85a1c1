"""`holodeck mcp call`: one call of one tool.

Text of the result is printed, images, audio and other bytes are saved to new files, and a failure is exit code 1. The
form of the arguments is checked before a server is started; their types are those of the tool's input schema.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import open_plugin, run_with_logging
from holodeck.cli.commands.mcp.target import Target, failure_data, select_server, target_options, to_plain_json
from holodeck.cli.output.config_problems import print_topic, topic_of_error
from holodeck.cli.output.progress import Progress
from holodeck.config.agent_loader import LoadedTool
from holodeck.config.known_keys import closest_match
from holodeck.lib.errors import ConfigError, ExecutionError, HoloDeckError, MCPError, MCPToolNotFoundError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    ContentBlock,
    ImageContent,
    TextContent,
    describe_block,
)

if TYPE_CHECKING:
    from holodeck.tools.executor import ToolCall
    from holodeck.tools.mcp.content import MCPToolResult
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

# Characters of the name of a saved file, without its number and extension: file systems allow 255 bytes.
MAX_SAVED_NAME_CHARS = 60
_EXTENSIONS = {"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "image/jpeg": ".jpg"}
_MIME_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")

_EPILOG = """\b
Examples:
  holodeck mcp call files read_file path=notes.md
  holodeck mcp call sums add '{"a": 2, "b": 3}'
  echo '{"a": 2, "b": 3}' | holodeck mcp call sums add -
  holodeck mcp call --url https://mcp.example.com/mcp chart kind=pie --out charts"""

_ARTICLES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}


@click.command("call", epilog=_EPILOG, context_settings={"ignore_unknown_options": False})
@click.argument("words", nargs=-1, required=True, metavar="[SERVER] TOOL [ARGUMENTS]...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder for images, audio and other files of the result (default: the current one).",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds that the call may take.")
@click.option("--raw", is_flag=True, help="Print text unchanged, including control characters.")
@target_options
def command(target: Target, words: tuple[str, ...], out: Path, timeout: float | None, raw: bool) -> int:
    """Call TOOL of SERVER with ARGUMENTS: key=value, a JSON object, or - for a JSON object on standard input.

    SERVER may be omitted if there is only one. Exit codes: 0 success, 1 the tool or its server failed,
    2 wrong configuration or usage.
    """
    loaded = target.load_servers()
    names = {item.tool.name for item in loaded.tools} | set(loaded.refused)
    is_named = len(words) > 1 and (words[0] in names or (not is_argument(words[1]) and closest_match(words[0], names)))
    if not is_named and len(names) != 1 and len(words) == 1:
        raise ConfigError.of([Problem(message="say which tool", fix="Usage: mcp call SERVER TOOL [ARGUMENTS]...")])
    server, rest = (words[0], words[1:]) if is_named or len(names) != 1 else (None, words)
    item = select_server(loaded, server, target)
    tool, words = rest[0], rest[1:]
    stdin_text = sys.stdin.read() if "-" in words else ""
    # Only to check the form of the arguments before a server is started.
    parse_call_arguments(words, {}, stdin_text)
    result = run_with_logging(_call_tool(item, tool, words, stdin_text, timeout), verbose=target.verbose)
    printer = _ResultPrinter(folder=out, stem=f"{item.tool.name}-{tool}", is_raw=raw)
    if target.as_json:
        click.echo(json.dumps({"server": item.tool.name, "tool": tool, **printer.to_json(result)}, indent=2))
    else:
        printer.print_result(result)
    return 0 if result.success else 1


async def _call_tool(
    item: LoadedTool, name: str, words: Sequence[str], stdin_text: str, seconds: float | None
) -> MCPToolResult:
    async with (
        Progress(f"starting {item.tool.name}") as progress,
        open_plugin(item, _user_callbacks(item, progress)) as plugin,
    ):
        info = await _find_tool(plugin, name, is_required=needs_schema(words))
        arguments = parse_call_arguments(words, {} if info is None else info.input_schema, stdin_text)
        progress.phase = f"calling {name} of {item.tool.name}"

        def show_progress(done: float | None, total: float | None, message: str | None) -> None:
            share = "" if done is None else f" {done:g}{f' of {total:g}' if total else ''}"
            progress.phase = f"calling {name} of {item.tool.name}:{share} {message or ''}"

        async def send(call: ToolCall) -> MCPToolResult:
            return await plugin.call(name, call.arguments, on_progress=show_progress, timeout=seconds, expected=info)

        result = await _run_call(plugin, info, name, arguments, send)
        if isinstance(result.error, MCPToolNotFoundError):
            raise await _not_found_error(plugin, name, result.error)
        return result


def _user_callbacks(item: LoadedTool, progress: Progress) -> Callbacks | None:
    """Return callbacks that put questions of the server to the user; None without a terminal: they are declined."""
    from holodeck.cli.output.ask_user import UserPrompter
    from holodeck.cli.output.terminal import Terminal
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

    terminal = Terminal()
    if not terminal.can_ask:
        return None
    prompter = UserPrompter(terminal)

    async def elicit(params: Mapping[str, Any]) -> Mapping[str, Any]:
        with progress.pause():
            return await prompter.elicit(item.tool.name, params)

    return Callbacks(elicitation=elicit)


async def _find_tool(plugin: MCPPlugin, name: str, *, is_required: bool) -> MCPToolInfo | None:
    """Return the tool; None if it is not listed. Without a list: raise MCPError if `is_required`, else None."""
    try:
        tools = await plugin.list_tools()
    except MCPError:
        if is_required:
            raise
        # The call fails for the same reason, and says so.
        return None
    return next((tool for tool in tools if name in (tool.name, tool.model_name)), None)


async def _run_call(
    plugin: MCPPlugin,
    info: MCPToolInfo | None,
    name: str,
    arguments: Mapping[str, Any],
    send: Callable[[ToolCall], Awaitable[MCPToolResult]],
) -> MCPToolResult:
    """Have the call pass the rules of every call. To type it is to approve it. Raises `ConfigError`."""
    from holodeck.models.model_io import ToolSpec
    from holodeck.tools.calls import ArgumentChecker, CallPipeline
    from holodeck.tools.executor import CallRules, CallTarget, Refusal, ToolCall, ToolResult
    from holodeck.tools.mcp.tool_patterns import needs_approval

    spec = None if info is None else ToolSpec(name=info.name, parameters=info.input_schema)
    rules = CallRules(
        target=CallTarget(server=plugin.name, tool=name if info is None else info.name),
        needs_approval=info is not None and needs_approval(plugin.config, info),
        is_approved=True,
    )
    checker = ArgumentChecker()
    try:
        outcome = await CallPipeline(checker).run(
            ToolCall(call_id="", name=name, arguments=arguments, spec=spec),
            rules,
            send,
            lambda call, result: ToolResult(call_id=call.call_id, content=tuple(result.content)),
        )
    finally:
        await checker.close()
    if isinstance(outcome, Refusal):
        fix = f"holodeck mcp tools {plugin.name} shows what it takes"
        raise ConfigError.of([Problem(message=outcome.text, fix=fix)])
    assert not isinstance(outcome, ToolResult)  # noqa: S101 - only a hook or a durable run has one ready
    return outcome


async def _not_found_error(plugin: MCPPlugin, name: str, error: MCPToolNotFoundError) -> HoloDeckError:
    known = [tool.name for tool in await plugin.list_tools()]
    close = closest_match(name, known)
    hint = f" Did you mean '{close}'?" if close else f" 'holodeck mcp tools {plugin.name}' shows what there is."
    return MCPToolNotFoundError(f"{error}{hint}", server=error.server, phase=error.phase, details=error.details)


class _ResultPrinter:
    """Prints the text of a result and saves its other content to files."""

    def __init__(self, *, folder: Path, stem: str, is_raw: bool) -> None:
        self._folder = folder
        self._stem = stem
        self._is_raw = is_raw

    def print_result(self, result: MCPToolResult) -> None:
        is_failure = not result.success
        if result.error is not None and not result.is_error:
            click.echo(escape_unprintable(str(result.error)), err=True)
            print_topic(topic_of_error(result.error))
            return
        for block in result.content:
            self._write(self._block_line(block), err=is_failure)
        extra = _text_after_blocks(result)
        if extra:
            self._write(extra, err=is_failure)
        for warning in result.metadata.get("warnings", ()):
            click.echo(f"warning: {escape_unprintable(str(warning))}", err=True)

    def to_json(self, result: MCPToolResult) -> dict[str, Any]:
        data: dict[str, Any] = {
            "success": result.success,
            "is_error": result.is_error,
            "content": [self._block_data(block) for block in result.content],
            "structured": to_plain_json(result.structured),
            "metadata": to_plain_json(result.metadata),
        }
        return {**data, **failure_data(result.error)} if result.error is not None else data

    def _block_line(self, block: ContentBlock) -> str:
        if isinstance(block, TextContent):
            return block.text
        if block.type == "binary" and block.is_link:
            about = f" ({block.mime_type})" if block.mime_type else ""
            return f"[link: {block.uri}{about}]"
        saved = save_block(block, folder=self._folder, stem=self._stem)
        return f"[{saved.mime_type}, {saved.size} bytes, saved to {saved.path}]"

    def _block_data(self, block: ContentBlock) -> dict[str, Any]:
        if isinstance(block, TextContent):
            return {"type": "text", "text": block.text, **({"uri": block.uri} if block.uri else {})}
        if block.type == "binary" and block.is_link:
            return {"type": "link", "uri": block.uri, "mime_type": block.mime_type, "name": block.name}
        try:
            saved = save_block(block, folder=self._folder, stem=self._stem)
        except ExecutionError as error:
            return {"type": block.type, "mime_type": block.mime_type, "error": str(error)}
        return {"type": block.type, "mime_type": saved.mime_type, "file": str(saved.path), "bytes": saved.size}

    def _write(self, text: str, *, err: bool) -> None:
        if self._is_raw:
            stream = sys.stderr.buffer if err else sys.stdout.buffer
            stream.write(text.encode("utf-8", "replace") + b"\n")
            stream.flush()
        else:
            # Line by line: most lines need no escaping, and the check of such a line is fast.
            click.echo("\n".join(map(escape_unprintable, text.split("\n"))), err=err)


def _text_after_blocks(result: MCPToolResult) -> str:
    """Return the part of the result text that no block has: structured content, or a note that it is empty."""
    shown = "\n".join(describe_block(block) for block in result.content)
    return result.text.removeprefix(shown).removeprefix("\n") if result.content else result.text


@record
class SavedFile:
    """A file that was written from a part of a result."""

    path: Path
    mime_type: str
    size: int


def save_block(block: ImageContent | AudioContent | BinaryContent, *, folder: Path, stem: str) -> SavedFile:
    """Write the bytes of a block to a new file in `folder`, numbered after `stem`. Raises `ExecutionError`."""
    mime_type = block.mime_type or "application/octet-stream"
    data = block.data if isinstance(block, BinaryContent) else _decode_base64(block.data, mime_type)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:MAX_SAVED_NAME_CHARS] or "result"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = _write_new_file(folder, name, _extension_for(mime_type), data)
    except OSError as error:
        raise ExecutionError(f"Cannot write to '{folder}': {error.strerror}. Choose another with --out.") from None
    return SavedFile(path=path, mime_type=mime_type, size=len(data))


def _write_new_file(folder: Path, name: str, extension: str, data: bytes) -> Path:
    number = 1
    while True:
        path = folder / f"{name}-{number}{extension}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            number += 1
        else:
            return path


def _decode_base64(data: str, mime_type: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ExecutionError(f"The {mime_type} data of the answer is not base64.") from None


def _extension_for(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    if not _MIME_TYPE.fullmatch(kind):
        return ".bin"
    return _EXTENSIONS.get(kind) or mimetypes.guess_extension(kind) or ".bin"


def parse_call_arguments(words: Sequence[str], schema: Mapping[str, Any], stdin_text: str) -> dict[str, Any]:
    """Return the arguments from JSON objects, `key=value` pairs, and `-` for `stdin_text`; later ones win.

    With an empty schema only the form of the words is checked. Raises `ConfigError`.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        if word == "-":
            arguments |= _parse_object(stdin_text, "the input")
        elif word.lstrip().startswith("{"):
            arguments |= _parse_object(word, "the argument")
        else:
            name, separator, text = word.partition("=")
            if not separator or not name:
                raise _argument_error(f"'{word}' is not key=value, a JSON object or '-'")
            arguments[name] = parse_typed_value(text, name, schema)
    _check_names(arguments, schema)
    return arguments


def _check_names(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Refuse a misspelled argument, which the schema does not have, beside one of nearly that name that is missing.

    A schema that says that it takes further arguments takes them all.
    """
    known = schema.get("properties")
    if not isinstance(known, Mapping) or schema.get("additionalProperties"):
        return
    for name in arguments:
        close = None if name in known else closest_match(name, [each for each in known if each not in arguments])
        if close is not None:
            raise _argument_error(f"there is no argument '{name}'", f"Did you mean '{close}'?")


def is_argument(word: str) -> bool:
    """Return whether a word has the form of an argument."""
    return word == "-" or word.lstrip().startswith("{") or "=" in word[1:]


def needs_schema(words: Sequence[str]) -> bool:
    """Return whether a `key=value` pair is among the words, whose type only the schema of the tool tells."""
    return any(word != "-" and not word.lstrip().startswith("{") for word in words)


def parse_typed_value(text: str, name: str, schema: Mapping[str, Any]) -> Any:
    """Convert a value to a type of its property; without one, to JSON if it is valid JSON, else to text.

    Raises `ConfigError` if the text is not JSON and the property is not a string.
    """
    properties = schema.get("properties")
    allowed = _allowed_types(properties.get(name)) if isinstance(properties, Mapping) else set()
    if allowed == {"string"}:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if allowed and "string" not in allowed:
            expected = " or ".join(_ARTICLES.get(kind, f"JSON ({kind})") for kind in sorted(allowed))
            raise _argument_error(f"'{name}' must be {expected}") from None
        return text
    if "string" in allowed and not isinstance(value, (int, float, bool, type(None), list, dict)):
        # A quoted text is passed on with its quotes, as it was typed.
        return text
    return value if not allowed or _has_type(value, allowed) else text if "string" in allowed else value


def _allowed_types(schema: object) -> set[str]:
    """Return the JSON types that a schema allows; empty if it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    kinds = schema.get("type")
    found = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
    for key in ("anyOf", "oneOf"):
        for choice in schema.get(key) or () if isinstance(schema.get(key), list) else ():
            found |= _allowed_types(choice)
    values = schema.get("enum")
    if not found and isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        found = {"string"}
    return {kind for kind in found if isinstance(kind, str)}


def _has_type(value: object, allowed: set[str]) -> bool:
    kinds: dict[str, bool] = {
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "null": value is None,
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return any(kinds.get(kind, False) for kind in allowed)


def _parse_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _argument_error(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _argument_error(f"{what} is not a JSON object", 'Arguments have names: {"a": 2}')
    return value


def _argument_error(message: str, fix: str = "") -> ConfigError:
    return ConfigError.of(
        [Problem(message=message, fix=fix or "For example: text=hello count=3, or '{\"count\": 3}'.")]
    )
