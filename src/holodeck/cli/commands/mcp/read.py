"""`holodeck mcp read`: the content of one resource, once or on each update.

The server is the one that lists the URI, or the one with a template for it; with one server only, no list is needed.
All servers that were started to find it are closed before the content is read, except that one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import open_plugin, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, select_server, start_timeout_option, target_options, to_plain_json
from holodeck.cli.output.progress import Progress
from holodeck.config.agent_loader import LoadedTool
from holodeck.lib.errors import ConfigError, ExecutionError, HoloDeckError, MCPError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin

# Codes with which servers of either era say that there is no such resource.
_NOT_FOUND_CODES = frozenset({-32002, -32602})

_EPILOG = """\b
Examples:
  holodeck mcp read notes://2026/plan
  holodeck mcp read files file:///logo.png -o logo.png
  holodeck mcp read --watch notes://2026/plan
  holodeck mcp read --url https://mcp.example.com/mcp docs://index --json"""


@click.command("read", epilog=_EPILOG)
@click.argument("words", nargs=-1, required=True, metavar="[SERVER] URI")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write the content to; an existing one is replaced.",
)
@click.option("--watch", is_flag=True, help="Print the content again on each update, until Ctrl-C.")
@start_timeout_option
@target_options
def command(target: Target, words: tuple[str, ...], out: Path | None, watch: bool, timeout: float | None) -> int:
    """Read the resource URI of SERVER, or of the server that lists it or has a template for it.

    Text goes to standard output. Other content needs a file, or a standard output that is not a terminal.
    Exit codes: 0 success, 1 the server failed or has no such resource, 2 wrong configuration or usage.
    """
    if len(words) > 2:  # noqa: PLR2004 - the server and the resource
        raise _usage_error("there is one URI to read", "Write: holodeck mcp read [SERVER] URI")
    *named, uri = words
    server = named[0] if named else None
    loaded = target.load_servers()
    if server is not None:
        servers: Sequence[LoadedTool] = [select_server(loaded, server, target)]
    else:
        servers = [item for item in loaded.tools if isinstance(item.tool, MCPTool) and item.tool.enabled]
    if not servers:
        select_server(loaded, None, target)
    reader = _Reader(uri=uri, printer=_Printer(out=out, as_json=target.as_json, is_repeated=watch), is_watching=watch)
    try:
        run_with_logging(reader.run([with_timeout(item, timeout) for item in servers]), verbose=target.verbose)
    except KeyboardInterrupt:
        # The usual end of watching.
        if not watch:
            raise
    return 0


@record
class _Reader:
    """Finds the server of a resource, and prints the resource."""

    uri: str
    printer: _Printer
    is_watching: bool

    async def run(self, servers: Sequence[LoadedTool]) -> None:
        """Print the resource. Raises `HoloDeckError`; while watching, only if the first reading fails."""
        async with AsyncExitStack() as stack:
            async with Progress() as progress:
                plugin = await self._find_server(servers, stack, progress)
                progress.phase = f"reading from {plugin.name}"
                if not self.is_watching:
                    self.printer.print_result(plugin.name, self.uri, await self._request(plugin))
                    return
            await self._watch(plugin)

    async def _watch(self, plugin: MCPPlugin) -> None:
        updated = asyncio.Event()
        updated.set()
        async with await plugin.subscribe(self.uri, lambda _: updated.set()):
            is_first, latest = True, None
            while True:
                await updated.wait()
                updated.clear()
                try:
                    result = await self._request(plugin)
                except HoloDeckError as error:
                    if is_first:
                        raise
                    click.echo(escape_unprintable(str(error)), err=True)
                    continue
                # A reconnection is announced like an update.
                if result.get("contents") != latest:
                    self.printer.print_result(plugin.name, self.uri, result)
                is_first, latest = False, result.get("contents")

    async def _request(self, plugin: MCPPlugin) -> Mapping[str, Any]:
        try:
            return await plugin.request_resource(self.uri)
        except MCPError as error:
            if error.details.get("code") not in _NOT_FOUND_CODES:
                raise
            hint = f"'holodeck mcp resources {plugin.name}' shows what there is."
            raise ExecutionError(f"{error} {hint}") from None

    async def _find_server(self, servers: Sequence[LoadedTool], stack: AsyncExitStack, progress: Progress) -> MCPPlugin:
        if len(servers) == 1:
            return await stack.enter_async_context(open_plugin(servers[0]))
        names = ", ".join(item.tool.name for item in servers)
        progress.phase = f"asking {names}"
        async with AsyncExitStack() as searched:
            plugins = [await searched.enter_async_context(open_plugin(item)) for item in servers]
            offers = await asyncio.gather(*(_look_up(plugin, self.uri) for plugin in plugins))
            chosen = self._choose(offers)
            # Closed with the others, it would have to be started again.
            await asyncio.gather(*(plugin.close() for plugin in plugins if plugin is not chosen))
            stack.push_async_exit(searched.pop_all())
            return chosen

    def _choose(self, offers: Sequence[_Offer]) -> MCPPlugin:
        listing = [offer for offer in offers if offer.is_listed]
        matching = listing or [offer for offer in offers if offer.is_template_matched]
        for offer in offers:
            if offer.error is not None:
                click.echo(f"{offer.plugin.name}: {escape_unprintable(reason_text(offer.error))}", err=True)
        if len(matching) == 1:
            return matching[0].plugin
        if matching:
            names = ", ".join(offer.plugin.name for offer in matching)
            raise _usage_error(f"several servers have {self.uri}: {names}", "Say which one with --server.")
        having = ", ".join(offer.plugin.name for offer in offers if offer.has_resources)
        fix = f"Servers with resources: {having}. Say which one with --server." if having else ""
        message = f"no server lists {self.uri} or has a template for it"
        if any(offer.error is not None for offer in offers):
            raise ExecutionError(f"{message}, as far as they answered. {fix}".strip())
        raise _usage_error(message, fix or "None of the servers has resources.")


@record
class _Offer:
    """The answer of one server about a URI."""

    plugin: MCPPlugin
    is_listed: bool = False
    is_template_matched: bool = False
    has_resources: bool = False
    error: HoloDeckError | None = None


async def _look_up(plugin: MCPPlugin, uri: str) -> _Offer:
    from holodeck.lib.net.uri_template import match_template

    try:
        resources, templates = await plugin.list_resources(), await plugin.list_resource_templates()
    except HoloDeckError as error:
        return _Offer(plugin=plugin, error=error)
    return _Offer(
        plugin=plugin,
        is_listed=any(info.uri == uri for info in resources),
        is_template_matched=any(match_template(info.uri_template, uri) is not None for info in templates),
        has_resources=plugin.has_resources,
    )


@record
class _Printer:
    """Writes contents to standard output or to a file."""

    out: Path | None
    as_json: bool
    is_repeated: bool
    """Whether the same resource is printed several times."""

    def print_result(self, server: str, uri: str, result: Mapping[str, Any]) -> None:
        """Print the result of one reading. Raises `ExecutionError` and `ConfigError`."""
        if self.as_json:
            data = {"server": server, "uri": uri, **to_plain_json(result)}
            click.echo(json.dumps(data, indent=None if self.is_repeated else 2))
            return
        contents = [item for item in result.get("contents") or [] if isinstance(item, dict)]
        if self.is_repeated and sys.stderr.isatty():
            click.secho(f"-- {datetime.now().astimezone():%H:%M:%S} {escape_unprintable(uri)}", dim=True, err=True)
        if not contents:
            click.echo("(the resource is empty)", err=True)
        for number, content in enumerate(contents, start=1):
            self._print_content(content, number)
        sys.stdout.flush()

    def _print_content(self, content: Mapping[str, Any], number: int) -> None:
        text = content.get("text")
        if self.out is not None:
            self._write_file(self.out, number, _decode_content(content))
        elif not sys.stdout.isatty():
            sys.stdout.buffer.write(_decode_content(content))
        elif isinstance(text, str):
            # Line by line: most lines need no escaping, and the check of such a line is fast.
            click.echo("\n".join(map(escape_unprintable, text.split("\n"))), nl=not text.endswith("\n"))
        else:
            kind = escape_unprintable(str(content.get("mimeType") or "unknown type"))
            message = f"the content is not text ({kind}, {len(_decode_content(content))} bytes)"
            raise _usage_error(message, "Give it a file with -o FILE.")

    def _write_file(self, out: Path, number: int, data: bytes) -> None:
        # A resource with several contents is several files.
        path = out if number == 1 else out.with_name(f"{out.stem}-{number}{out.suffix}")
        try:
            path.write_bytes(data)
        except OSError as error:
            raise ExecutionError(f"Cannot write {path}: {error.strerror}. Choose another file with -o.") from None
        click.echo(f"{len(data)} bytes written to {path}", err=True)


def _decode_content(content: Mapping[str, Any]) -> bytes:
    text, blob = content.get("text"), content.get("blob")
    if isinstance(text, str):
        return text.encode("utf-8", "replace")
    try:
        return base64.b64decode(blob if isinstance(blob, str) else "", validate=True)
    except (binascii.Error, ValueError):
        raise ExecutionError("The server gave data that is not base64.") from None


def _usage_error(message: str, fix: str) -> ConfigError:
    return ConfigError.of([Problem(message=message, fix=fix)])
