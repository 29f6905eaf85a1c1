"""`holodeck mcp serve`: the servers and agents of a file, offered to other MCP clients over stdio or HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.commands.mcp.target import DEFAULT_FILES
from holodeck.cli.default_file import resolve_file
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.output.config_problems import print_problems
from holodeck.cli.output.stdout_guard import take_over_stdout, write_stderr
from holodeck.cli.output.trust_question import require_trust, trust_option
from holodeck.config.actions import list_actions
from holodeck.config.known_keys import closest_match
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.log_handler import write_log
from holodeck.lib.system.memory import hide_memory

if TYPE_CHECKING:
    from holodeck.config.gateway_loader import LoadedGateway

# Seconds that the first list of tools waits for a server to start: npx may fetch it first, and clients give up after
# a minute.
DISCOVERY_SECONDS = 45.0

_EPILOG = """\b
Examples:
  holodeck mcp serve                       ./agent.yaml, ./gateway.yaml or ./mcp.json, for a program that starts it
  holodeck mcp serve team/agent.yaml       its servers' tools, and the agent itself as the tool ask_NAME
  holodeck mcp serve --server files        only the server 'files'
  holodeck mcp serve --http --port 9000    for programs that connect to http://127.0.0.1:9000/mcp

\b
In the file of an MCP client:
  {"mcpServers": {"holodeck": {"command": "holodeck", "args": ["mcp", "serve", "/home/me/agent.yaml"]}}}

\b
The file must be trusted first: a client has no terminal for the question. 'holodeck trust FILE' asks it.
Exit codes: 0 the client has left, 1 a failure, 2 wrong configuration or usage."""


@click.command("serve", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option("--server", help="Offer only this server, and no agents.")
@click.option(
    "--http", "is_http", is_flag=True, help="Serve streamable HTTP at /mcp instead of standard input and output."
)
@click.option("--host", help="With --http: the address to listen on (default: 127.0.0.1, or that of the file).")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="With --http: the port (default: 8080, or that of the file)."
)
@click.option("-v", "--verbose", is_flag=True, help="Log every call on standard error.")
@trust_option
def command(
    file: str | None,
    server: str | None,
    is_http: bool,
    host: str | None,
    port: int | None,
    verbose: bool,
    is_trusted: bool,
) -> int:
    """Offer the MCP servers and agents of FILE to another program, as one MCP server.

    FILE is an agent file, a gateway file or any program's mcp.json. Over stdio, standard output has nothing else.
    """
    if not is_http and (host is not None or port is not None):
        raise click.UsageError("--host and --port need --http.")
    if is_http and server is not None:
        raise click.UsageError(f"With --http, each server has its own address: /mcp/{server}")
    hide_memory()
    if is_http:
        return _serve_http(_load(file, is_http=True, is_trusted=is_trusted), host, port, verbose=verbose)
    # Standard output is taken over below, and the client must be told also after that.
    to_client = os.dup(1)
    try:
        return _serve_stdio(_load(file, is_http=False, is_trusted=is_trusted), server, verbose=verbose)
    except ConfigError as error:
        from holodeck.mcp_server.stdio_refusal import refuse_requests

        refuse_requests(0, to_client, f"holodeck: {error}")
        raise
    finally:
        os.close(to_client)


def _load(file: str | None, *, is_http: bool, is_trusted: bool) -> LoadedGateway:
    """Read the file, ask whether the user trusts it, and print its warnings. Raises `ConfigError`."""
    path = resolve_file(file, DEFAULT_FILES, fix="Name an agent file, a gateway file or an mcp.json.")
    loaded = _load_trusted(path, is_http=is_http, is_trusted=is_trusted)
    if loaded.warnings:
        print_problems(loaded.warnings)
    return loaded


def _load_trusted(path: Path, *, is_http: bool, is_trusted: bool) -> LoadedGateway:
    from holodeck.config.gateway_loader import gateway_of_agent, gateway_of_servers, is_gateway
    from holodeck.runtime import is_other_program_file, read_agent, read_gateway, read_servers

    if is_other_program_file(path):
        servers = read_servers(path, kind="file")
        require_trust(path, list_actions(servers), is_trusted=is_trusted)
        return gateway_of_servers(servers, path.absolute())
    if is_http or is_gateway(path, str(path)):
        loaded = read_gateway(path)
        require_trust(path, list_actions(loaded), is_trusted=is_trusted)
        return loaded
    agent = read_agent(path)
    # Over stdio the agent does nothing that `holodeck run` does not do: the same record of trust is enough.
    require_trust(path, list_actions(agent), is_trusted=is_trusted)
    return gateway_of_agent(agent)


def _serve_stdio(loaded: LoadedGateway, server: str | None, *, verbose: bool) -> int:
    from holodeck.gateway.mcp_endpoint.local_server import LocalMCPServer

    limits = loaded.gateway.limits.model_copy(update={"discovery_seconds": DISCOVERY_SECONDS})
    loaded = replace(loaded, gateway=loaded.gateway.model_copy(update={"limits": limits}))
    # Before anything of the project is imported, which may print.
    stdout = take_over_stdout(write_stderr)
    write_log("text", "info" if verbose else "warning")
    local = LocalMCPServer(loaded, environ=os.environ, server=server)
    if server is not None and server not in local.server_names:
        raise _unknown_server(loaded, server, local.server_names)

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        with suppress(NotImplementedError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await local.run(0, stdout.fileno())

    run_interruptible(serve())
    return 0


def _serve_http(loaded: LoadedGateway, host: str | None, port: int | None, *, verbose: bool) -> int:
    from holodeck.cli.commands.serve import run_service
    from holodeck.models.gateway import Listen

    changed = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    listen = Listen.model_validate({**loaded.gateway.listen.model_dump(), **changed})
    loaded = replace(loaded, gateway=loaded.gateway.model_copy(update={"listen": listen}))
    write_log("text", "info" if verbose else "warning")
    run_service(loaded, log_format="text", path="/mcp")
    return 0


def _unknown_server(loaded: LoadedGateway, name: str, known: list[str]) -> ConfigError:
    close = closest_match(name, known)
    fix = f"Did you mean '{close}'?" if close else f"There are: {', '.join(known)}."
    return ConfigError.of([Problem(message=f"there is no server '{name}'", file=str(loaded.path), fix=fix)])
