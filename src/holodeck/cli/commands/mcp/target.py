"""Selection of the servers that a `holodeck mcp` command uses: the shared options, and errors as JSON."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holodeck.cli.default_file import resolve_file
from holodeck.cli.main import json_option
from holodeck.cli.output.config_problems import count_problems, print_problems, problem_data
from holodeck.cli.output.trust_question import require_trust, trust_option
from holodeck.config.actions import Actions, list_actions
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, LoadedTool
from holodeck.config.env_loader import PlaceholderVariables
from holodeck.config.known_keys import closest_match
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.errors import ConfigError, HoloDeckError, MCPError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.trust import VARIABLE, is_allowed_by_variable, is_part_of

DEFAULT_FILES = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, "mcp.json", ".mcp.json", ".vscode/mcp.json")
_Command = TypeVar("_Command", bound=Callable[..., Any])


@record
class Target:
    """The shared options of a command: where the servers are, and how to print the result."""

    file: str | None
    url: str | None
    command: str | None
    headers: tuple[str, ...]
    env: tuple[str, ...]
    as_json: bool
    verbose: bool
    is_trusted: bool = False
    """Whether the user has said on the command line that the file is trusted."""

    @property
    def label(self) -> str:
        """Where the servers are defined, for messages."""
        return self.file or ("the URL" if self.url else "the command")

    def load_servers(self) -> LoadedServers:
        """Read the servers, and ask whether the user trusts their file. Raises `ConfigError`, also for a no.

        A URL or a command that the user has typed needs no question.
        """
        loaded = self.load_unused_servers()
        if self.file is not None:
            file, actions = Path(self.file), list_actions(loaded)
            is_trusted = self.is_trusted or _is_part_of_allowed_file(file, actions)
            require_trust(file, actions, is_trusted=is_trusted)
        return loaded

    def load_unused_servers(self) -> LoadedServers:
        """Read the servers without a question, for a command that starts and dials none. Raises `ConfigError`."""
        from holodeck.runtime import read_servers

        if self.url:
            return read_servers(self.url, kind="url", headers=parse_pairs(self.headers, ":", "--header"))
        if self.command:
            return read_servers(self.command, kind="command", env=parse_pairs(self.env, "=", "--env"))
        return read_servers(self.file or DEFAULT_AGENT_FILE, kind="file")


start_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that a server may take to start, and for each answer.",
)


def print_errors_as_json(function: _Command) -> Callable[..., Any]:
    """Let a command with `--json` print a `HoloDeckError` as JSON: exit code 2 for configuration, otherwise 1."""

    @functools.wraps(function)
    def wrapper(*args: Any, as_json: bool, **rest: Any) -> int:
        try:
            return int(function(*args, as_json=as_json, **rest))
        except HoloDeckError as error:
            if not as_json:
                raise
            click.echo(json.dumps(failure_data(error), indent=2))
            return 2 if isinstance(error, ConfigError) else 1

    return wrapper


def target_options(function: _Command) -> Callable[..., Any]:
    """Add the shared options to a command, which receives them as `target`.

    With `--json`, a `HoloDeckError` is printed as JSON on stdout: exit code 2 for configuration, otherwise 1.
    """
    options = [
        click.option(
            "-f",
            "--file",
            help="Agent file, gateway file (with the servers of its agents) or mcp.json "
            f"(default: the first of {', '.join(DEFAULT_FILES)}).",
        ),
        click.option("--url", help="Use the server at this URL instead of a file."),
        click.option("--command", help='Use the server that this command starts instead of a file: "npx -y PACKAGE".'),
        click.option(
            "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="HTTP header for --url (repeatable)."
        ),
        click.option(
            "--env", multiple=True, metavar="NAME[=VALUE]", help="Environment variable for --command (repeatable)."
        ),
        json_option(),
        click.option("-v", "--verbose", is_flag=True, help="Show details and the log, including that of servers."),
        trust_option,
    ]

    @print_errors_as_json
    @functools.wraps(function)
    def wrapper(
        *,
        file: str | None,
        url: str | None,
        command: str | None,
        headers: tuple[str, ...],
        env: tuple[str, ...],
        as_json: bool,
        verbose: bool,
        is_trusted: bool,
        **rest: Any,
    ) -> int:
        target = Target(
            file=_resolve_file(file, url, command),
            url=url,
            command=command,
            headers=headers,
            env=env,
            as_json=as_json,
            verbose=verbose,
            is_trusted=is_trusted,
        )
        return int(function(target=target, **rest))

    for option in reversed(options):
        wrapper = option(wrapper)
    return wrapper


def _is_part_of_allowed_file(file: Path, actions: Actions) -> bool:
    """Return whether HOLODECK_TRUST has the digest of the whole file, of which only the servers were read."""
    from holodeck.runtime import is_other_program_file, read_agent_or_gateway

    if not os.environ.get(VARIABLE) or is_other_program_file(file):
        return False
    try:
        whole = list_actions(read_agent_or_gateway(file))
    except ConfigError:
        return False
    return is_allowed_by_variable(whole, os.environ) and is_part_of(actions, whole.actions)


def failure_data(error: HoloDeckError) -> dict[str, Any]:
    """Return an error as data for `--json`."""
    if isinstance(error, ConfigError):
        messages = "; ".join(problem.message for problem in error.problems)
        return {"error": {"message": messages}, "problems": [problem_data(problem) for problem in error.problems]}
    if isinstance(error, MCPError):
        return {"error": {"message": str(error), "phase": error.phase, "details": to_plain_json(error.details)}}
    return {"error": {"message": str(error)}}


def to_plain_json(value: Any) -> Any:
    """Convert a value to plain JSON data; what JSON cannot hold becomes its text."""
    return json.loads(json.dumps(value, default=str))


def select_servers(loaded: LoadedServers, name: str | None, target: Target) -> Sequence[LoadedTool]:
    """Return the server with this name, or all for None. Raises `ConfigError`."""
    if name is None:
        return loaded.tools
    if name in loaded.refused:
        raise ConfigError.of(loaded.refused[name])
    found = [item for item in loaded.tools if item.tool.name == name]
    if found:
        return found
    raise unknown_server_error(name, [*(item.tool.name for item in loaded.tools), *loaded.refused], target.label)


def unknown_server_error(name: str, known: Sequence[str], file: str) -> ConfigError:
    """Return the error for a server that a file does not list, with the name that was meant or all there are."""
    close = closest_match(name, known)
    fix = f"Did you mean '{close}'?" if close else f"There are: {', '.join(known)}." if known else "It lists none."
    return ConfigError.of([Problem(message=f"there is no server '{name}'", file=file, fix=fix)])


def select_servers_by_names(file: Path, names: Sequence[str]) -> Sequence[LoadedTool]:
    """Return the MCP servers of a file with these names, or all but the user's own shared ones. Raises `ConfigError`.

    Variables need not be set: nothing is started, and no value is used.
    """
    from holodeck.runtime import read_servers

    loaded = read_servers(file, kind="file", environ=PlaceholderVariables(os.environ))
    target = Target(file=str(file), url=None, command=None, headers=(), env=(), as_json=False, verbose=False)
    if not names:
        own = [item for item in loaded.tools if not item.is_personal]
        errors = [problem for problems in loaded.refused.values() for problem in problems]
        if errors:
            raise ConfigError.of(errors)
        return own
    return [item for name in dict.fromkeys(names) for item in select_servers(loaded, name, target)]


def select_server(loaded: LoadedServers, name: str | None, target: Target) -> LoadedTool:
    """Return the server with this name, or the only one for None. Raises `ConfigError`, also if it is disabled."""
    chosen = select_servers(loaded, name, target)
    if len(chosen) != 1:
        known = ", ".join(item.tool.name for item in loaded.tools)
        message = "say which server" if chosen else "there is no server that can be used"
        raise ConfigError.of([Problem(message=message, file=target.label, fix=f"There are: {known}." if known else "")])
    item = chosen[0]
    if isinstance(item.tool, MCPTool) and not item.tool.enabled:
        message = f"the server '{item.tool.name}' is switched off"
        raise ConfigError.of([Problem(message=message, file=target.label, fix="Set 'enabled: true' to use it.")])
    return item


def _resolve_file(file: str | None, url: str | None, command: str | None) -> str | None:
    options = [name for name, value in (("--file", file), ("--url", url), ("--command", command)) if value is not None]
    if len(options) > 1:
        raise _usage_error(f"{' and '.join(options)} exclude each other")
    if url is not None or command is not None:
        return None
    return str(resolve_file(file, DEFAULT_FILES, fix="Name a file with -f, or a server with --url or --command."))


def parse_pairs(texts: Sequence[str], separator: str, option: str) -> dict[str, str]:
    """Return the values of a repeatable option by name. Raises `ConfigError`.

    A name without a value has that of the environment variable, except for `--header`.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition(separator)
        if not name.strip() or (not found and option == "--header"):
            raise _usage_error(f"{option} needs NAME{separator}VALUE")
        if not found:
            value = os.environ.get(name, "")
        pairs[name.strip()] = value.strip() if option == "--header" else value
    return pairs


def _usage_error(message: str, fix: str = "") -> ConfigError:
    return ConfigError.of([Problem(message=message, fix=fix)])


def warn_about_file(loaded: LoadedServers, target: Target) -> None:
    """Print the number of problems of the file on standard error; with `-v`, the problems."""
    if not loaded.problems:
        return
    if target.verbose:
        click.echo(err=True)
        print_problems(loaded.problems)
        return
    click.echo(
        f"\n{escape_unprintable(target.label)}: {count_problems(loaded.problems)}; 'holodeck mcp doctor' shows them.",
        err=True,
    )
