"""`holodeck serve`: an agent or a gateway behind the API of the OpenAI SDKs, until Ctrl-C or SIGTERM.

SIGTERM ends the process at once until the service runs; from then on the service drains its requests first. After the
service has closed, threads that hang are given `THREAD_EXIT_TIMEOUT` seconds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.ctrl_c import let_asyncio_handle_interrupts
from holodeck.cli.default_file import resolve_file
from holodeck.cli.output.config_problems import print_problems
from holodeck.cli.output.stdout_guard import redirect_prints_to_log
from holodeck.cli.output.trust_question import require_trust, trust_option
from holodeck.config.actions import list_actions
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE
from holodeck.lib import log
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.log_handler import Format, write_log
from holodeck.lib.system.fd_limits import allow_many_open_files
from holodeck.lib.system.private_memory import hide_memory

if TYPE_CHECKING:
    from holodeck.config.gateway_loader import LoadedGateway
    from holodeck.gateway.reload import ConfigurationReader
    from holodeck.gateway.service import Service

# Seconds for threads to end after the service has closed; one that hangs must not keep the process alive.
THREAD_EXIT_TIMEOUT = 3.0

_STANDARD_STREAMS = (0, 1, 2)
# Where MCP clients connect.
_MCP_PATH = "/mcp"
_EPILOG = """\b
Examples:
  holodeck serve                       serve ./gateway.yaml, or else ./agent.yaml
  holodeck serve agent.yaml            one agent, for you alone
  HOLODECK_LISTEN__PORT=9000 holodeck serve gateway.yaml
  holodeck serve --log-format json     a log for programs

\b
Then, with any OpenAI SDK:
  client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="...")"""


@click.command("serve", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of the log: text, or one JSON object per line (default: log.format of the file, or text).",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level that is logged (default: log.level of the file, or info).",
)
@trust_option
def command(file: str | None, log_format: Format | None, log_level: str | None, is_trusted: bool) -> None:
    """Serve a gateway FILE or an agent FILE over HTTP until Ctrl-C or SIGTERM.

    The log goes to standard error: a line for every request and tool call, without any content.
    """
    _exit_on_sigterm()
    hide_memory()
    from holodeck.gateway.reload import ConfigurationReader

    reader = ConfigurationReader(
        Path(resolve_file(file, (DEFAULT_GATEWAY_FILE, DEFAULT_AGENT_FILE))), environ=os.environ
    )
    loaded = reader.read()
    actions = list_actions(loaded)
    require_trust(loaded.path, actions, is_trusted=is_trusted)
    reader.agree_to(actions)
    chosen_format = log_format or loaded.gateway.log.format
    write_log(chosen_format, log_level or loaded.gateway.log.level)
    redirect_prints_to_log(chosen_format)
    if chosen_format == "json":
        for problem in loaded.warnings:
            log.warning("gateway.file", where=problem.where, key=problem.key, message=problem.message, fix=problem.fix)
    elif loaded.warnings:
        print_problems(loaded.warnings)
    run_service(loaded, reader=reader, log_format=chosen_format)


def run_service(
    loaded: LoadedGateway, *, log_format: Format, path: str = "/v1", reader: ConfigurationReader | None = None
) -> None:
    """Serve a gateway until a signal. `path`: what is added to the address that is shown. `reader`: see `Service`."""
    from holodeck.gateway.backends import build_backends
    from holodeck.gateway.service import Service

    service = Service(
        loaded, build_backends(loaded, environ=os.environ), reader=reader, drains_on_hangup=_is_at_terminal()
    )

    def on_ready(url: str) -> None:
        # All objects of now are long-lived: without this, collections that scan them take a fifth of a plain request.
        gc.freeze()
        if log_format == "json":
            log.info("gateway.serving", url=f"{url}{path}", models=list(service.backends), is_open=service.has_no_auth)
            return
        # A log on a full disk or without a reader must not prevent serving.
        with suppress(OSError):
            names, shown_path = _list_served(service, path)
            click.echo(f"Serving {escape_unprintable(', '.join(names))} at {url}{shown_path}", err=True)
            if service.has_no_auth:
                click.echo("No keys are configured: only this machine can use it, without a key.", err=True)

    import uvloop

    allow_many_open_files()
    let_asyncio_handle_interrupts()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service.run(on_ready))
        _exit_soon()


def _list_served(service: Service, path: str) -> tuple[list[str], str]:
    """The names of the models and agents with the path at which they are; without any, those of the MCP servers."""
    if service.backends:
        return list(service.backends), path
    servers = dict.fromkeys(offer.server.name for offer in service.configurations.current.server_tools)
    return list(servers), _MCP_PATH


def _exit_on_sigterm() -> None:
    """Let SIGTERM end the process at once until the service runs.

    The first process of a container ignores signals without a handler: it would go on to serve, and be killed at the
    end of the drain period.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _is_at_terminal() -> bool:
    """Whether a terminal is attached, which sends SIGHUP when it is closed. A service has none."""
    return any(os.isatty(stream) for stream in _STANDARD_STREAMS)


def _exit_soon() -> None:
    """End the process soon, even if a thread hangs, as in a database that does not answer. All else is closed."""
    end = threading.Timer(THREAD_EXIT_TIMEOUT, os._exit, args=(0,))
    end.daemon = True
    end.start()
