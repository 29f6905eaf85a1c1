"""`holodeck mcp dev`: runs a server while it is written, and restarts it when a file is saved.

The lines of the user, or of standard input, call tools. They are read one after the other; a call waits for the start
in progress. The server, the file watcher and the printer are tasks of one group: when the input ends, the command
cancels them, which closes the process of the server. Ctrl-C cancels the call that runs; without one it ends everything.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from holodeck.cli.chat.line_reader import EditorReader, LineReader, PipeReader
from holodeck.cli.commands.mcp.call import is_argument, parse_call_arguments
from holodeck.cli.commands.mcp.connect import run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import failure_data, parse_pairs, start_timeout_option
from holodeck.cli.dev.dev_server import DevServer, listen_to_log
from holodeck.cli.dev.event_printer import EventPrinter
from holodeck.cli.dev.events import Notice, Watching
from holodeck.cli.dev.file_watcher import FileWatcher, WatchedPath
from holodeck.cli.dev.program import Program, plan_program
from holodeck.cli.main import json_option
from holodeck.cli.output import stdin
from holodeck.cli.output.ask_user import UserPrompter
from holodeck.config.agent_loader import LoadedTool
from holodeck.config.known_keys import closest_match
from holodeck.lib.errors import ConfigError, Problem
from holodeck.runtime import read_servers

COMMANDS = ("tools", "restart", "help", "quit")
_HELP = "TOOL key=value ... or TOOL {JSON} calls a tool; tools, restart, quit. Ctrl-C cancels a call, or ends."
# Files of a change that are named.
_MAX_NAMED_FILES = 3
_EPILOG = """\b
Examples:
  holodeck mcp dev server.py                     with .venv/bin/python beside it, or the python on PATH
  holodeck mcp dev "node build/index.js" --watch build
  holodeck mcp dev -- uv run server.py --verbose
  holodeck mcp dev server.py --once              start it, show its tools, and end
  echo 'add a=2 b=3' | holodeck mcp dev server.py

\b
At the prompt: TOOL key=value ..., TOOL {JSON}, tools, restart, help, quit. A tool of one of these names: call NAME.

\b
Exit codes: 0 good, 1 the server did not start or a call of standard input failed, 2 wrong usage."""


@click.command("dev", epilog=_EPILOG)
@click.argument("words", nargs=-1, required=True, metavar="PROGRAM [ARGUMENTS]...")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="File or folder that restarts the server when it changes (repeatable; default: sources beside the script).",
)
@click.option("--once", is_flag=True, help="Start the server, show what it offers, and end.")
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Environment variable for the server (repeatable).")
@start_timeout_option
@json_option("Print one JSON object per event.")
def command(
    words: tuple[str, ...],
    watched: tuple[Path, ...],
    once: bool,
    env: tuple[str, ...],
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run the MCP server PROGRAM, show what it does, call its tools, and restart it when a file is saved.

    PROGRAM is a script (.py, .js, .ts) or a command. Options for the program go after --.
    """
    folder = Path.cwd()
    try:
        program = plan_program(words, folder)
        loaded = _load_server(program, folder, parse_pairs(env, "=", "--env"))
    except ConfigError as error:
        if not as_json:
            raise
        click.echo(json.dumps(failure_data(error)))
        return 2
    paths = [WatchedPath(path=folder / path) for path in watched] or [program.watched]
    session = DevSession(with_timeout(loaded, timeout), program, paths, as_json=as_json)
    return run_with_logging(session.run(is_once=once), verbose=False)


def _load_server(program: Program, folder: Path, env: Mapping[str, str]) -> LoadedTool:
    """Return the definition of the server. The user has typed the command: it needs no trust."""
    (loaded,) = read_servers(shlex.join(program.argv), kind="command", cwd=folder, env=env).tools
    return replace(loaded, tool=loaded.tool.model_copy(update={"name": program.name}))


class DevSession:
    """One run of the command. Built outside of the event loop; `run` builds what needs one."""

    def __init__(self, loaded: LoadedTool, program: Program, watched: Sequence[WatchedPath], *, as_json: bool) -> None:
        self._loaded = loaded
        self._program = program
        self._watched = watched
        self._as_json = as_json
        self._is_interactive = stdin.is_terminal() and sys.stdout.isatty() and not as_json
        self._has_failed = False
        self._is_calling = False

    async def run(self, *, is_once: bool) -> int:
        """Run until the input ends, or the first start with `is_once`. Returns the exit code."""
        self._printer = EventPrinter(as_json=self._as_json)
        self._prompter = UserPrompter(self._printer)
        elicit = self._elicit if self._printer.can_ask else None
        self._server = DevServer(
            self._loaded, self._program.argv, self._printer.show, elicit=elicit, has_restarts=not is_once
        )
        watcher = FileWatcher(self._watched, self._restart_changed)
        with listen_to_log(self._printer.show):
            async with asyncio.TaskGroup() as group:
                self._tasks = [group.create_task(self._printer.run())]
                if not is_once:
                    await self._show_watched(watcher)
                    self._tasks.append(group.create_task(watcher.run()))
                self._tasks.append(group.create_task(self._server.run()))
                self._server.request_restart("")
                try:
                    is_running = await (self._server.wait_settled() if is_once else self._answer_lines())
                    await self._printer.flush()
                finally:
                    for task in self._tasks:
                        task.cancel()
        return 0 if is_running and not self._has_failed else 1

    async def _show_watched(self, watcher: FileWatcher) -> None:
        scan = await watcher.scan_first()
        paths = tuple(_shorten_path(item.path) for item in self._watched)
        self._printer.show(Watching(paths=paths, files=len(scan.stamps), is_cut=scan.is_cut))

    def _restart_changed(self, changed: Sequence[Path]) -> None:
        names = ", ".join(map(_shorten_path, changed[:_MAX_NAMED_FILES]))
        hidden = len(changed) - _MAX_NAMED_FILES
        self._server.request_restart(f"{names}{f' and {hidden} more' if hidden > 0 else ''} changed")

    async def _answer_lines(self) -> bool:
        """Answer each line until the input ends. Returns whether the server is running then."""
        reader: LineReader = PipeReader()
        if self._is_interactive:
            reader = EditorReader(self._list_names, prompt="mcp> ", mark="", history="mcp_dev_history")
            self._printer.show(Notice(text=_HELP))
            await self._printer.flush()
        while True:
            try:
                line = (await reader.read_line()).strip()
            except EOFError:
                break
            if line == "quit":
                break
            if line:
                await self._answer_line(line)
                await self._printer.flush()
        # An editor that was left has no server to wait for.
        return self._is_interactive or await self._server.wait_settled()

    async def _answer_line(self, line: str) -> None:
        """Run one line. A cancellation by Ctrl-C ends the call, and not the command."""
        try:
            match line:
                case "restart":
                    self._server.request_restart("requested")
                    await self._server.wait_settled()
                case "tools":
                    await self._server.wait_settled()
                    self._server.show_tools()
                case "help":
                    self._printer.show(Notice(text=_HELP))
                case _:
                    await self._call(line)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            # Also cancelled when another task of the group has failed.
            if me is None or not self._is_calling or any(task.done() for task in self._tasks):
                raise
            me.uncancel()
        finally:
            self._is_calling = False

    async def _call(self, line: str) -> None:
        try:
            name, words = split_call(line)
            await self._server.wait_settled()
            arguments = parse_call_arguments(words, self._find_schema(name), "")
        except ConfigError as error:
            problem = error.problems[0]
            self._fail(f"{problem.message}. {problem.fix}".rstrip())
            return
        self._is_calling = True
        if not await self._server.call(name, arguments):
            self._has_failed = self._has_failed or not self._is_interactive

    def _fail(self, text: str) -> None:
        self._printer.show(Notice(text=text, is_warning=True))
        self._has_failed = self._has_failed or not self._is_interactive

    def _find_schema(self, name: str) -> Mapping[str, Any]:
        """Return the input schema of a tool; empty if no list is known. Raises `ConfigError` for an unknown tool."""
        tools = {name: tool for tool in self._server.tools for name in (tool.model_name, tool.name)}
        if name in tools:
            return tools[name].input_schema
        if not tools:
            return {}
        close = closest_match(name, [*tools, *COMMANDS])
        fix = f"Did you mean '{close}'?" if close else "'tools' lists what there is."
        raise ConfigError.of([Problem(message=f"there is no tool '{name}'", fix=fix)])

    def _list_names(self) -> list[str]:
        return [*(tool.name for tool in self._server.tools), *COMMANDS]

    async def _elicit(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        # Outside of a call the line editor reads the terminal.
        if not self._is_calling:
            text = "The server asked a question outside of a call; it was declined."
            self._printer.show(Notice(text=text, is_warning=True))
            return {"action": "decline"}
        await self._printer.flush()
        return await self._prompter.elicit(self._program.name, params)


def split_call(line: str) -> tuple[str, list[str]]:
    """Return the name of the tool and its arguments, one JSON object or words. Raises `ConfigError`."""
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    # A tool may be called "call" as well.
    if name == "call" and rest and not is_argument(rest.split(maxsplit=1)[0]):
        name, _, rest = rest.partition(" ")
        rest = rest.strip()
    if rest.startswith("{"):
        return name, [rest]
    try:
        return name, shlex.split(rest)
    except ValueError as error:
        message = f"the line cannot be read: {str(error).lower()}"
        raise ConfigError.of([Problem(message=message, fix="Put a text with spaces in quotes.")]) from None


def _shorten_path(path: Path) -> str:
    """Return a path below the current folder relative to it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
