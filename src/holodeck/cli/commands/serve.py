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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
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
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.log_handler import Format, write_log
from holodeck.lib.record import record
from holodeck.lib.system.fd_limits import allow_many_open_files
from holodeck.lib.system.memory import hide_memory

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
  holodeck serve --port 9000 --open    on another port, and open it in the browser
  holodeck serve --host 0.0.0.0        for other machines; needs keys in the file
  holodeck serve --log-format json     a log for programs

\b
Then, with any OpenAI SDK:
  client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="...")"""


@click.command("serve", epilog=_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--host", metavar="ADDRESS", help="Address to listen on (default: listen.host of the file, or 127.0.0.1)."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 for any free one (default: listen.port of the file, or 8080).",
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the gateway in the browser.")
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
def command(
    file: str | None,
    host: str | None,
    port: int | None,
    opens_browser: bool,
    log_format: Format | None,
    log_level: str | None,
    is_trusted: bool,
) -> None:
    """Serve a gateway FILE or an agent FILE over HTTP until Ctrl-C or SIGTERM.

    The log goes to standard error: a line for every request and tool call, without any content.
    """
    _exit_on_sigterm()
    hide_memory()
    from holodeck.gateway.reload import ConfigurationReader

    overrides = _list_overrides(host, port)
    reader = ConfigurationReader(
        Path(resolve_file(file, (DEFAULT_GATEWAY_FILE, DEFAULT_AGENT_FILE))),
        environ={**os.environ, **{each.variable: each.value for each in overrides}},
    )
    try:
        loaded = reader.read()
    except ConfigError as error:
        if not overrides or not error.problems:
            raise
        raise ConfigError.of([_name_option(problem, overrides) for problem in error.problems]) from None
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
    run_service(loaded, reader=reader, log_format=chosen_format, has_console=True, opens_browser=opens_browser)


@record
class _Override:
    """A value of an option, which goes the way of its variable: the same rules hold for both."""

    option: str
    variable: str
    value: str


def _list_overrides(host: str | None, port: int | None) -> list[_Override]:
    given = {"host": host, "port": None if port is None else str(port)}
    return [
        _Override(option=f"--{key}", variable=f"HOLODECK_LISTEN__{key.upper()}", value=value)
        for key, value in given.items()
        if value is not None
    ]


def _name_option(problem: Problem, overrides: Sequence[_Override]) -> Problem:
    """Return the problem with a value of an option, told as that instead of as one of its variable."""
    for each in overrides:
        if problem.file == each.variable:
            message = problem.message.replace(f"({each.variable})", each.value)
            return replace(problem, file=each.option, message=message)
    return problem


def run_service(
    loaded: LoadedGateway,
    *,
    log_format: Format,
    path: str = "/v1",
    reader: ConfigurationReader | None = None,
    has_console: bool = False,
    opens_browser: bool = False,
) -> None:
    """Serve a gateway until a signal. `path`: what is added to the address that is shown. `reader`: see `Service`.

    `has_console`: the address of the console is shown, too. `opens_browser`: and opened.
    """
    from holodeck.gateway.backends import build_backends
    from holodeck.gateway.service import Service

    service = Service(
        loaded, build_backends(loaded, environ=os.environ), reader=reader, drains_on_hangup=_is_at_terminal()
    )

    def on_ready(url: str) -> None:
        # All objects of now are long-lived: without this, collections that scan them take a fifth of a plain request.
        gc.freeze()
        console = f"{_local_url(url)}/"
        if opens_browser:
            # A thread that nothing waits for: some browsers return only when they are closed.
            threading.Thread(target=_open_in_browser, args=(console,), daemon=True).start()
        if log_format == "json":
            more = {"console": console} if has_console else {}
            names = list(service.backends)
            log.info("gateway.serving", url=f"{url}{path}", models=names, is_open=service.has_no_auth, **more)
            return
        # A log on a full disk or without a reader must not prevent serving.
        with suppress(OSError):
            names, shown_path = _list_served(service, path)
            click.echo(f"Serving {escape_unprintable(', '.join(names))} at {url}{shown_path}", err=True)
            if has_console:
                click.echo(f"Console: {console}", err=True)
            if service.has_no_auth:
                click.echo("No keys are configured: only this machine can use it, without a key.", err=True)

    import uvloop

    allow_many_open_files()
    let_asyncio_handle_interrupts()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service.run(on_ready))
        _exit_soon()


def _list_served(service: Service, path: str) -> tuple[list[str], str]:
    """Return the names of the models and agents with the path at which they are; without any, those of the MCP
    servers."""
    if service.backends:
        return list(service.backends), path
    servers = dict.fromkeys(offer.server.name for offer in service.configurations.current.server_tools)
    return list(servers), _MCP_PATH


def _local_url(url: str) -> str:
    """Return the address at which this machine reaches the gateway: one that listens everywhere is not at `0.0.0.0`."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _open_in_browser(url: str) -> None:
    """Open a page, or say that no browser does. Programs that would take over the terminal are not used."""
    import webbrowser

    is_open = False
    with suppress(webbrowser.Error):
        browser = webbrowser.get()
        is_in_terminal = type(browser) is webbrowser.GenericBrowser and not os.environ.get("BROWSER")
        is_open = not is_in_terminal and browser.open(url)
    if not is_open:
        with suppress(OSError):
            click.echo(f"There is no browser here that could be opened. The address is {url}", err=True)


def _exit_on_sigterm() -> None:
    """Let SIGTERM end the process at once until the service runs.

    The first process of a container ignores signals without a handler: it would go on to serve, and be killed at the
    end of the drain period.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _is_at_terminal() -> bool:
    """Return whether a terminal is attached, which sends SIGHUP when it is closed. A service has none."""
    return any(os.isatty(stream) for stream in _STANDARD_STREAMS)


def _exit_soon() -> None:
    """End the process soon, even if a thread hangs, as in a database that does not answer. All else is closed."""
    end = threading.Timer(THREAD_EXIT_TIMEOUT, os._exit, args=(0,))
    end.daemon = True
    end.start()
