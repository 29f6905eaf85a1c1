"""`holodeck mcp doctor`: for each server, which steps work, which one fails, why, and what to do about it.

The steps, in order: found (command on PATH, or host name resolved), started or reached, authorised, speaks MCP, lists
tools, answers, lint. The examination stops at the first failure; the steps after it are `not tried`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import click

from holodeck.cli.commands.mcp.connect import list_notices, open_plugin, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, select_servers, start_timeout_option, target_options
from holodeck.cli.output.config_problems import (
    count_findings,
    finding_lines,
    findings_data,
    has_error,
    print_problems,
    problem_data,
)
from holodeck.cli.output.progress import Progress
from holodeck.cli.output.tables import count_of
from holodeck.config.agent_loader import LoadedTool
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.errors import HoloDeckError, MCPError, MCPProtocolError, MCPTimeoutError
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.record import record
from holodeck.lib.redaction import mask_url
from holodeck.models.tool import CommandType, MCPTool, TransportType
from holodeck.runtime import lint_servers

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding
    from holodeck.tools.mcp.plugin import MCPPlugin

_OUTCOME_LABELS = {
    "ok": ("ok", "green"),
    "failed": ("FAILED", "red"),
    "warning": ("warning", "yellow"),
    "unneeded": ("-", None),
    "not tried": ("-", None),
}
_STEP_WIDTH = 12
_WORD_WIDTH = 8

Outcome = Literal["ok", "failed", "warning", "unneeded", "not tried"]
FOUND, STARTED, REACHED, AUTHORISED, SPEAKS, LISTS, ANSWERS, LINT = (
    "found",
    "started",
    "reached",
    "authorised",
    "speaks MCP",
    "lists tools",
    "answers",
    "lint",
)
_PHASES: Mapping[str, str] = {"connect": REACHED, "authorize": AUTHORISED, "initialize": SPEAKS}

_INSTALL: Mapping[str, str] = {
    CommandType.NPX: "Install Node.js, which brings npx.",
    CommandType.UVX: "Install uv, which brings uvx.",
    CommandType.DOCKER: "Install Docker, or podman with its 'docker' command.",
}
_NOT_MCP = "Its standard output must be MCP and nothing else. Is this the right package, with the right arguments?"
# What programs say of a file that they may not use, in lower case.
_DENIED = "permission denied"
_SANDBOXED = (
    "Its sandbox may keep it from the file above: list the file or its folder in 'sandbox.read', together with '.' if "
    "the server needs the folder of your file as well, or in 'sandbox.write' if it has to change it."
)
_POISONED = "Look at each error before you use the server; 'holodeck mcp tools -v' shows its texts in full."
_NOT_FOUND_STATUS = 404
_FORBIDDEN_STATUS = 403


_EPILOG = """\b
Examples:
  holodeck mcp doctor
  holodeck mcp doctor tickets --timeout 10
  holodeck mcp doctor --command "npx -y @modelcontextprotocol/server-everything\""""


@click.command("doctor", epilog=_EPILOG)
@click.argument("server", required=False)
@start_timeout_option
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Check all servers, or SERVER: found, started or reached, authorised, speaks MCP, lists tools, answers, lint.

    Exit codes: 0 all servers are healthy, 1 a step failed, 2 wrong configuration or usage.
    """
    loaded = target.load_servers()
    chosen = [with_timeout(item, timeout) for item in select_servers(loaded, server, target)]
    enabled = [item for item in chosen if isinstance(item.tool, MCPTool) and item.tool.enabled]
    disabled = [item.tool.name for item in chosen if item not in enabled]
    start_limit = "startup_timeout" if timeout is None else "--timeout"
    names = [item.tool.name for item in loaded.tools]
    work = _examine_all(enabled, start_limit, names, url=target.url, is_quiet=target.as_json)
    done = run_with_logging(work, verbose=target.verbose)
    problems = loaded.problems if server is None else ()
    if target.as_json:
        click.echo(json.dumps(_examinations_data(done, disabled, loaded if server is None else None), indent=2))
    else:
        for name in disabled:
            click.echo(f"{escape_unprintable(name)}: switched off, not examined\n")
        if problems:
            print_problems(problems)
    refused = bool(loaded.refused) and server is None
    if all(item.is_healthy for item in done):
        return 2 if refused else 0
    return 1


async def _examine_all(
    servers: Sequence[LoadedTool], start_limit: str, names: Sequence[str], *, url: str | None, is_quiet: bool
) -> list[Examination]:
    unfinished = {item.tool.name for item in servers}
    async with Progress() as progress, asyncio.TaskGroup() as group:

        async def examine_one(item: LoadedTool) -> Examination:
            done = await examine(item, start_limit, names, url)
            unfinished.discard(item.tool.name)
            progress.phase = f"examining {', '.join(sorted(unfinished))}"
            progress.clear()
            if not is_quiet:
                _print_examination(done, item)
            return done

        progress.phase = f"examining {', '.join(sorted(unfinished))}"
        tasks = [group.create_task(examine_one(item)) for item in servers]
    return [task.result() for task in tasks]


def _print_examination(done: Examination, item: LoadedTool) -> None:
    via = item.tool.transport.value if isinstance(item.tool, MCPTool) else ""
    click.secho(f"{done.server} ({via})", bold=True)
    for step in (step for step in done.steps if step.outcome != "not tried"):
        word, colour = _OUTCOME_LABELS[step.outcome]
        label = click.style(word, fg=colour) + " " * (_WORD_WIDTH - len(word))
        detail = escape_unprintable(step.detail).replace("\n", "\n" + " " * (_STEP_WIDTH + _WORD_WIDTH + 3))
        click.echo(f"  {step.name.ljust(_STEP_WIDTH)} {label}{detail}".rstrip())
        indent = " " * (_STEP_WIDTH + _WORD_WIDTH + 3)
        for line in finding_lines(done.findings) if step.name == LINT else ():
            click.echo(f"{indent}{line}")
        if step.advice:
            click.echo(f"{indent}What to do: {escape_unprintable(step.advice)}")
    click.echo()


def _examinations_data(
    done: Sequence[Examination], disabled: Sequence[str], loaded: LoadedServers | None
) -> dict[str, Any]:
    servers: list[dict[str, Any]] = [
        {
            "name": item.server,
            "healthy": item.is_healthy,
            "steps": [asdict(step) for step in item.steps],
            "findings": findings_data(item.findings),
        }
        for item in done
    ]
    servers += [{"name": name, "enabled": False} for name in disabled]
    if loaded is None:
        return {"servers": servers}
    servers += [
        {"name": name, "healthy": False, "problems": [problem_data(problem) for problem in found]}
        for name, found in loaded.refused.items()
    ]
    return {"servers": servers, "problems": [problem_data(problem) for problem in loaded.problems]}


@record
class Step:
    """One step and its outcome."""

    name: str
    outcome: Outcome
    detail: str = ""
    advice: str = ""


@dataclass(kw_only=True)
class Examination:
    """The steps of one server, in order."""

    server: str
    start_limit: str
    """The key or the option that limits the time to start."""
    login: str
    """The argument of `holodeck mcp login` for this server."""
    steps: list[Step] = field(default_factory=list)
    findings: Sequence[Finding] = ()
    """What lint has found in the entry and in the tools of the server."""

    @property
    def is_healthy(self) -> bool:
        return all(step.outcome != "failed" for step in self.steps)

    def add_passed(self, name: str, detail: str = "", outcome: Outcome = "ok") -> None:
        self.steps.append(Step(name=name, outcome=outcome, detail=detail))

    def add_failed(self, name: str, detail: str, advice: str) -> None:
        self.steps.append(Step(name=name, outcome="failed", detail=detail, advice=advice))


async def examine(loaded: LoadedTool, start_limit: str, names: Sequence[str], url: str | None) -> Examination:
    """Run the steps and stop at the first failure.

    `start_limit`: see `Examination`. `names`: all servers of the file, which lint compares with this one.
    `url`: that of a server which is in no file.
    """
    tool = loaded.tool
    done = Examination(server=tool.name, start_limit=start_limit, login=f"--url {mask_url(url)}" if url else tool.name)
    if not isinstance(tool, MCPTool):
        return done
    if await _check_found(tool, done):
        try:
            async with open_plugin(loaded) as plugin:
                tools = await _check_server(plugin, tool, done)
            if done.is_healthy:
                _check_lint(loaded, tools, names, done)
        except HoloDeckError as error:
            _add_connection_failure(error, tool, done)
    names = (FOUND, REACHED if tool.url else STARTED, AUTHORISED, SPEAKS, LISTS, ANSWERS, LINT)
    for name in names[len(done.steps) :]:
        done.add_passed(name, outcome="not tried")
    return done


async def _check_found(tool: MCPTool, done: Examination) -> bool:
    if tool.url:
        return await _check_host_resolves(tool, tool.url, done)
    command = str(tool.command)
    # A path is relative to the folder that the server is started in.
    where = shutil.which(str(Path(tool.cwd or "") / command) if "/" in command else command)
    if where is None:
        missing = "is no program on this machine" if _is_path(command) else "is not on PATH"
        done.add_failed(FOUND, f"'{command}' {missing}.", advice_for(FOUND, tool, None))
        return False
    done.add_passed(FOUND, where)
    return True


async def _check_host_resolves(tool: MCPTool, url: str, done: Examination) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        async with asyncio.timeout(tool.timeout):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no answer in time"
        done.add_failed(FOUND, f"the name '{host}' has no address ({why}).", advice_for(FOUND, tool, None))
        return False
    addresses = dict.fromkeys(str(address[4][0]) for address in found)
    done.add_passed(FOUND, f"{host} is {', '.join(addresses)}" if host not in addresses else host)
    return True


async def _check_server(plugin: MCPPlugin, tool: MCPTool, done: Examination) -> list[MCPToolInfo]:
    """Add the steps of a server that is connected, and return its tools."""
    began = time.monotonic()
    try:
        tools = await plugin.list_tools() if tool.load_tools else []
        if not tool.load_tools:
            await plugin.connect()
    except MCPError as error:
        if plugin.era is None:
            raise
        _add_connected_steps(plugin, tool, done, began)
        done.add_failed(LISTS, reason_text(error), advice_for(LISTS, tool, error))
        return []
    _add_connected_steps(plugin, tool, done, began)
    await _check_answers(plugin, tool, done, len(tools))
    return tools


def _check_lint(loaded: LoadedTool, tools: Sequence[MCPToolInfo], names: Sequence[str], done: Examination) -> None:
    done.findings = lint_servers([loaded], {loaded.tool.name: tools}, names)
    if has_error(done.findings):
        done.add_failed(LINT, count_findings(done.findings), _POISONED)
    elif done.findings:
        done.add_passed(LINT, count_findings(done.findings), outcome="warning")
    else:
        done.add_passed(LINT, "no findings")


def _add_connected_steps(plugin: MCPPlugin, tool: MCPTool, done: Examination, began: float) -> None:
    done.add_passed(REACHED if tool.url else STARTED, f"{time.monotonic() - began:.2f} s with the handshake")
    if tool.auth is not None or "authorization" in {name.lower() for name in tool.headers}:
        done.add_passed(AUTHORISED)
    else:
        done.add_passed(AUTHORISED, "the server did not ask for it" if tool.url else "", outcome="unneeded")
    info = plugin.server_info
    software = " ".join(str(info[key]) for key in ("name", "version") if info.get(key))
    done.add_passed(SPEAKS, f"{plugin.era}, {plugin.protocol_version}{f'; {software}' if software else ''}")


async def _check_answers(plugin: MCPPlugin, tool: MCPTool, done: Examination, tools: int) -> None:
    try:
        prompts = len(await plugin.list_prompts())
    except MCPError as error:
        done.add_failed(LISTS, reason_text(error), advice_for(LISTS, tool, error))
        return
    counts = f"{count_of(tools, 'tool')}, {count_of(prompts, 'prompt')}" if tool.load_tools else "'load_tools' is false"
    done.add_passed(LISTS, "\n".join((counts, *list_notices(plugin))))
    began = time.monotonic()
    try:
        await plugin.request("server/discover" if plugin.era == "modern" else "ping", {})
    except MCPProtocolError:
        # A JSON-RPC error is an answer as well.
        pass
    except MCPError as error:
        done.add_failed(ANSWERS, reason_text(error), advice_for(ANSWERS, tool, error))
        return
    done.add_passed(ANSWERS, f"{(time.monotonic() - began) * 1000:.0f} ms")


def _add_connection_failure(error: HoloDeckError, tool: MCPTool, done: Examination) -> None:
    """Add the step at which connecting failed, and those before it as passed."""
    name = _failed_step(error, tool)
    order = (REACHED if tool.url else STARTED, AUTHORISED, SPEAKS)
    for earlier in order[: order.index(name)]:
        done.add_passed(earlier, outcome="unneeded" if earlier == AUTHORISED and not tool.url else "ok")
    # The error and the advice name the key, also where an option of this command has replaced its value.
    detail, advice = (_name_options(text, tool, done) for text in (reason_text(error), advice_for(name, tool, error)))
    done.add_failed(name, detail, advice)


def _name_options(text: str, tool: MCPTool, done: Examination) -> str:
    text = text.replace("'startup_timeout'", f"'{done.start_limit}'")
    return text.replace(f"mcp login {tool.name}", f"mcp login {done.login}")


def _failed_step(error: HoloDeckError, tool: MCPTool) -> str:
    first = REACHED if tool.url else STARTED
    if not isinstance(error, MCPError):
        return first
    if error.phase == "authorize" or error.details.get("status") in (401, 403):
        return AUTHORISED if tool.url else first
    # A process that runs but does not answer has started, and does not speak MCP.
    if error.phase == "start":
        return SPEAKS if isinstance(error, MCPTimeoutError) else first
    if isinstance(error, MCPProtocolError):
        return SPEAKS
    if error.phase == "run" or "exit_code" in error.details:
        return first
    return _PHASES.get(error.phase, SPEAKS if "status" in error.details else first)


def advice_for(step: str, tool: MCPTool, error: HoloDeckError | None) -> str:
    """Return one or two sentences about what to do when this step of this server has failed."""
    match step:
        case "found":
            return _advise_not_found(tool)
        case "started":
            return _advise_not_started(tool, error)
        case "reached":
            address = shown_origin(tool.url or "")
            return f"Is the server running, and is it at {address}? A proxy or firewall may be in between."
        case "authorised":
            return _advise_unauthorised(tool, error)
        case "speaks MCP":
            return _advise_not_mcp(tool, error)
        case "lists tools":
            return "The server starts but cannot say what it has: this is a fault of the server. Try another version."
        case _:
            return "The server started but no longer answers: this is a fault of the server. Try another version."


def _advise_not_found(tool: MCPTool) -> str:
    if tool.url:
        return "Check the spelling of the URL, and whether you need a VPN to reach it."
    if tool.command is None:
        return "Give it a 'command'."
    if _is_path(tool.command):
        return "Write the path that it has here, or a name that is on PATH."
    return _INSTALL.get(tool.command, f"Install '{tool.command}', or name its whole path.")


def _is_path(command: str) -> bool:
    """Return whether a command names a place, such as one on another machine, from which its file came."""
    return "/" in command or "\\" in command


def _advise_not_started(tool: MCPTool, error: HoloDeckError | None) -> str:
    details = error.details if isinstance(error, MCPError) else {}
    if details.get("advice"):
        return str(details["advice"])
    if tool.sandbox_limits is not None and _DENIED in str(details.get("stderr", "")).lower():
        return _SANDBOXED
    if details.get("stderr"):
        return "Read its last output above, or start it by hand: it should show what is missing."
    return _NOT_MCP if details.get("stray_output") else "Start it by hand: it should show what is missing."


def _advise_unauthorised(tool: MCPTool, error: HoloDeckError | None) -> str:
    status = error.details.get("status") if isinstance(error, MCPError) else None
    if status == _FORBIDDEN_STATUS:
        return "The server knows you, but does not let you in: ask its operator, or log in with another account."
    if tool.auth is not None and tool.auth.type == "oauth_client_credentials":
        return "Check 'client_id', 'client_secret', 'token_url' and 'scopes' of its 'auth'."
    if tool.auth is not None and tool.auth.type == "bearer":
        return "Check the token of its 'auth'; it may have expired."
    if any(name.lower() == "authorization" for name in tool.headers):
        return "Check the Authorization in its 'headers'; the token may have expired."
    return f"Run 'holodeck mcp login {tool.name}', or give it an Authorization in 'headers'."


def _advise_not_mcp(tool: MCPTool, error: HoloDeckError | None) -> str:
    status = error.details.get("status") if isinstance(error, MCPError) else None
    if tool.starts_process:
        if isinstance(error, MCPTimeoutError) and not error.details.get("stray_output"):
            return "It runs but does not answer. A first start may download for long: raise 'startup_timeout'."
        return _NOT_MCP
    if tool.transport is TransportType.HTTP:
        where = " There is nothing at this path." if status == _NOT_FOUND_STATUS else ""
        return f"Is this the URL of the MCP endpoint (often .../mcp)?{where} An older server needs 'transport: sse'."
    return "Is this the URL of the MCP endpoint? A newer server needs 'transport: http'."
