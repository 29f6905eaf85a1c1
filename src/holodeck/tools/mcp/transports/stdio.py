"""The stdio transport: the server is a child process, with one message per line on standard input and output.

`open` starts the process, `close` ends it. When the process exits, or closes its input or output, the transport waits
up to `PROCESS_OUTPUT_GRACE` for its exit, the end of its output and standard error. Then it fails with the exit code
and the last lines of standard error. That error also tells whether the process read any of its input: one that did not
has failed by itself. Requests wait while the process does not read its input.

The process inherits the variables that programs need on this machine, and gets those of the tool. Other variables,
which may contain keys of the operator, are not inherited, nor are values with a login in them.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import cast

from holodeck.lib import log
from holodeck.lib.errors import MCPConfigError, MCPConnectionError
from holodeck.lib.limits import KIB
from holodeck.lib.line_splitter import LineSplitter
from holodeck.lib.secret import Secret
from holodeck.lib.system.fd_shortage import is_file_shortage
from holodeck.lib.system.process import Process, count_unread_bytes, spawn_process
from holodeck.lib.tasks import TaskSet
from holodeck.models.tool import Sandbox
from holodeck.tools.mcp.errors import advise_missing_import, describe_output
from holodeck.tools.mcp.launch.npx import build_npx_environment, prepare_npx_folder
from holodeck.tools.mcp.launch.plan import check_start, plan_launch
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, encode, encode_ascii, sniff_id
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup
from holodeck.tools.mcp.transports.duplex import DuplexTransport

# Seconds between the exit of a process and the end of the output that is still in its pipes.
PROCESS_OUTPUT_GRACE = 0.25
# Lines of standard error in an error text.
STDERR_LINES_SHOWN = 8
# Bytes of standard error that these lines are taken from.
_MAX_STDERR_SHOWN = 4 * KIB
# Bytes of one line of standard error that a listener gets; of a longer one it gets the size.
_MAX_STDERR_LINE = 64 * KIB
# Node.js writes the stack, and its version last, below the message of an error that ends a program.
_NODE_END = re.compile(r"Node\.js v[\d.]+")
_NODE_FRAME = re.compile(r"\s+at \S")

_INSTALL = {
    "npx": "Install Node.js (it brings npx)",
    "uvx": "Install uv (it brings uvx)",
    "docker": "Install Docker",
}


class StdioTransport(DuplexTransport):
    """Runs a server as a child process."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        super().__init__(setup, on_message)
        tool = setup.tool
        self._launch = plan_launch(tool, container=f"holodeck-{tool.name}-{token_hex(4)}")
        self._tool = tool
        self._base_dir = setup.base_dir
        self._cwd = setup.base_dir / (tool.cwd or "")
        self._encoding = codecs.lookup(tool.encoding).name
        self._process: Process | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._flow = _StdinFlow(self._schedule_end_report)
        self._queued: list[bytes] = []
        self._output_ended = asyncio.Event()
        self._spawned = asyncio.Event()
        self._tasks = TaskSet()
        self._is_end_scheduled = False
        self._is_negotiated = False
        self._splitter = LineSplitter(
            limit=self._limit,
            on_line=self.receive if self._encoding == "utf-8" else self._receive_recoded,
            on_dropped=self._fail_dropped_line,
            on_end=self._on_output_end,
            budget=setup.budget,
        )
        self._stderr = None if setup.on_stderr is None else self._split_stderr(setup.on_stderr)

    async def open(self) -> None:
        try:
            check_start(self._tool, self._base_dir)
        except MCPConfigError as error:
            raise self._errors.connection("start", f"it was not started: {error}") from error
        withheld = withheld_variables(os.environ, self._launch.env)
        if withheld:
            name = self._errors.server
            notice = f"{name} is started without {', '.join(withheld)}: there is a login in it. 'env' can pass it on."
            log.info("mcp.variables_withheld", server=name, notice=notice)
        env, cwd = child_environment(os.environ, self._launch.env), self._cwd
        argv = self._launch.argv
        npx_folders: list[Path] = []
        try:
            if self._launch.needs_npx_folder and cwd.is_dir():
                folder = self._prepare_npx_folder()
                env, cwd, npx_folders = build_npx_environment(env, argv, folder, cwd), folder, [folder]
            if self._tool.sandbox_limits is not None and self._cwd.is_dir():
                argv, env = self._plan_sandbox(self._tool.sandbox_limits, env, npx_folders)
            self._process = await spawn_process(
                argv,
                env=env,
                cwd=str(cwd),
                stdout=self._splitter,
                stdin=self._flow,
                stderr=self._stderr,
                on_exit=self._schedule_end_report,
                container=self._launch.container,
            )
            self._stdin = self._process.stdin
        except MCPConfigError as error:
            raise self._errors.connection("start", f"it was not started: {error}") from error
        except (OSError, ValueError) as error:
            raise self._start_error(error) from error
        finally:
            self._spawned.set()

    def _split_stderr(self, listener: Callable[[str], None]) -> LineSplitter:
        def pass_line(line: bytes | bytearray) -> None:
            listener(self._errors.mask(line.decode("utf-8", "replace").rstrip("\r")))

        return LineSplitter(
            limit=_MAX_STDERR_LINE,
            on_line=pass_line,
            # Not its two ends: a secret that is cut there would not be masked.
            on_dropped=lambda _head, _tail, size: listener(f"[a line of {size} bytes is left out]"),
            on_end=lambda: None,
        )

    def _plan_sandbox(
        self, limits: Sandbox, env: dict[str, str], npx_folders: list[Path]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        # Imported late: most servers run without a sandbox, and ctypes takes long to load.
        from holodeck.tools.mcp.launch.sandbox import plan_sandbox

        return plan_sandbox(
            limits,
            self._launch.argv,
            env,
            own_variables=self._launch.env,
            server=self._tool.name,
            folder=self._base_dir,
            cwd=self._cwd,
            env_file=self._tool.env_file,
            read=npx_folders,
        )

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        self._is_negotiated = True

    async def close(self) -> None:
        # The end of the process is no longer to be reported; the task ends at the next pass of the loop.
        self._tasks.cancel()
        self.fail(self._errors.connection("close", "the connection was closed"))
        if self._process is not None:
            await self._process.close()
            if self._process.was_killed:
                text = "it did not exit after the end of its input and SIGTERM, and was killed."
                raise self._errors.connection("close", text)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        stdin = self._find_stdin()
        if stdin is not None and not self.failure.done() and not self._flow.is_paused:
            self._write(stdin, build_cancellation(request_id, reason))

    def is_stuck(self, since: float) -> bool:
        return self._flow.is_paused or self._splitter.is_stuck(since)

    def stderr_tail(self) -> str:
        if self._process is None:
            return ""
        lines = self._process.stderr_tail()[-_MAX_STDERR_SHOWN:].decode("utf-8", "replace").splitlines()
        lines = _drop_node_stack([line for line in lines if line.strip()])
        return self._errors.mask("\n".join(lines[-STDERR_LINES_SHOWN:]))

    def stray_output(self) -> str:
        return self._first_stray

    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        while self._flow.is_paused:
            await self._flow.wait_resumed()
        if self.failure.done():
            raise self.failure.result()
        stdin = self._find_stdin()
        if stdin is None:
            # The report of the end, which is under way, fails this request. It was not sent, and can be repeated.
            return
        delivery.may_have_been_sent = True
        self._write(stdin, message)

    def _find_stdin(self) -> asyncio.WriteTransport | None:
        """Return standard input if it is open. Not each loop ignores a write to a closed pipe: uvloop raises."""
        return None if self._stdin is None or self._stdin.is_closing() else self._stdin

    def _write(self, stdin: asyncio.WriteTransport, message: Message) -> None:
        line = (encode(message) if self._encoding == "utf-8" else encode_ascii(message)) + b"\n"
        self._flow.sent_bytes += len(line)
        if len(self._pending) <= 1 and not self._queued:
            stdin.write(line)
            return
        # Concurrent requests are written with one system call, at the next pass of the loop.
        self._queued.append(line)
        if len(self._queued) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        lines, self._queued = self._queued, []
        stdin = self._find_stdin()
        if stdin is not None and not self.failure.done():
            stdin.write(b"".join(lines))

    def _receive_recoded(self, raw: bytes | bytearray) -> None:
        self.receive(raw.decode(self._encoding, "replace").encode("utf-8", "replace"))

    def _fail_dropped_line(self, head: bytes, tail: bytes, size: int) -> None:
        request_id = sniff_id(head, tail)
        if size > self._limit:
            self.fail_unusable(
                request_id, f"it has {size} bytes and the limit is {self._limit}; see 'max_result_bytes'", head
            )
        elif request_id is not None:
            self._fail_request(request_id, self._errors.over_budget("call"))
        else:
            self._discard("the byte budget is exhausted", head)

    def _schedule_end_report(self) -> None:
        """Report the end of the process once; called when it exits, and when its output or its input is closed."""
        if not self._is_end_scheduled and not self.failure.done():
            self._is_end_scheduled = True
            self._tasks.start(self._report_end())

    def _on_output_end(self) -> None:
        self._output_ended.set()
        self._schedule_end_report()

    async def _report_end(self) -> None:
        # The process may exit before `spawn_process` has returned.
        await self._spawned.wait()
        try:
            async with asyncio.timeout(PROCESS_OUTPUT_GRACE):
                await self._output_ended.wait()
                if self._process is not None:
                    await self._process.exited.wait()
        except TimeoutError:
            pass
        # Standard error may end in the same pass of the loop.
        await asyncio.sleep(0)
        if self._process is not None:
            self.fail(self._exit_error(self._process))

    def _exit_error(self, process: Process) -> MCPConnectionError:
        code = process.exit_code
        command = self._launch.argv[0]
        subject = "it" if self._is_negotiated else f"'{command}'"
        if code is None:
            end = f"{subject} closed its {'output' if self._output_ended.is_set() else 'input'}"
        elif code < 0:
            end = f"{subject} was ended by signal {-code}"
        else:
            end = f"{subject} ended with exit code {code}"
        # A server that has answered may have its log there, which does not explain its end.
        stray = "" if self._is_negotiated else self.stray_output()
        stderr = self.stderr_tail()
        advice = "" if self._is_negotiated else advise_missing_import(stderr, command)
        text = f"{end}." + (f" {advice}" if advice else "")
        text += describe_output(stray, stderr) or " It wrote nothing to standard error."
        phase = "run" if self._is_negotiated else "start"
        return self._errors.connection(
            phase,
            text,
            exit_code=code,
            stderr=stderr,
            stray_output=stray or None,
            command=command,
            advice=advice or None,
            is_input_unread=self._flow.is_all_unread() or None,
        )

    def _prepare_npx_folder(self) -> Path:
        """Return the folder that npx starts in. Raises `MCPConnectionError` if the user's cache cannot be written."""
        try:
            return prepare_npx_folder()
        except OSError as error:
            # That of an operating system without free descriptors says nothing about the folder.
            if is_file_shortage(error):
                raise
            why = f"{error.strerror}: {error.filename}"
            text = f"the folder for npx cannot be written ({why}). Set XDG_CACHE_HOME to one that can."
            raise self._errors.connection("start", text) from error

    def _start_error(self, error: Exception) -> MCPConnectionError:
        command = self._launch.argv[0]
        if is_file_shortage(error):
            return self._errors.out_of_files("start")
        if not self._cwd.is_dir():
            text = f"the folder '{self._cwd}' to start it in does not exist. Correct 'cwd'."
        elif isinstance(error, FileNotFoundError) and ("/" in command or "\\" in command):
            # Such as a path of another machine, in a file that came from there.
            text = f"there is no program '{command}' on this machine. Write its path here, or a name on PATH."
        elif isinstance(error, FileNotFoundError):
            hint = _INSTALL.get(command, f"Install '{command}'")
            text = f"'{command}' is not on PATH. {hint}, or use a server at a URL."
        elif isinstance(error, PermissionError):
            text = f"'{command}' may not be executed. Check its permissions."
        else:
            text = f"'{command}' could not be started: {error}."
        return self._errors.connection("start", text, command=command)


class _StdinFlow(asyncio.BaseProtocol):
    """Flow control of standard input: paused while the process does not read it."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        """`on_lost`: called when the pipe is closed, by the process or by this side."""
        self._on_lost = on_lost
        self.is_paused = False
        self.sent_bytes = 0
        self._resumed = asyncio.Event()
        self._transport: asyncio.WriteTransport | None = None
        self._read_bytes = 0
        """Bytes that the process had read when the pipe was closed. What is sent later is not read."""

    def is_all_unread(self) -> bool:
        """Return whether the process has read nothing of what was sent to it."""
        return (self._read_bytes if self._transport is None else self._count_read(self._transport)) <= 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop is no subclass of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)

    def pause_writing(self) -> None:
        self.is_paused = True
        self._resumed.clear()

    def resume_writing(self) -> None:
        self.is_paused = False
        self._resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        # The pipe is still open here. After an error its reader had ended before all was written.
        if self._transport is not None:
            self._read_bytes = 0 if exc is not None else self._count_read(self._transport)
        self._transport = None
        self.resume_writing()
        self._on_lost()

    async def wait_resumed(self) -> None:
        await self._resumed.wait()

    def _count_read(self, transport: asyncio.WriteTransport) -> int:
        unread = transport.get_write_buffer_size() + count_unread_bytes(transport.get_extra_info("pipe"))
        return self.sent_bytes - unread


_INHERITED = frozenset(
    {"PATH", "HOME", "LOGNAME", "USER", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "COLORTERM"}
    # A browser that a server opens needs the display.
    | {"NO_COLOR", "FORCE_COLOR", "DISPLAY", "WAYLAND_DISPLAY"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"}
    | {"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_TLS"}
    | {"DOCKER_API_VERSION", "DOCKER_DEFAULT_PLATFORM", "DOCKER_CONTENT_TRUST", "DOCKER_CONTENT_TRUST_SERVER"}
    # `npx` or `uvx` on PATH may be a shim of a version manager, which needs these.
    | {"NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR", "FNM_MULTISHELL_PATH", "ASDF_DIR", "ASDF_DATA_DIR", "PYENV_ROOT"}
    | {"PYENV_VERSION", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "NIX_PATH", "NIX_SSL_CERT_FILE"}
)
_INHERITED_ON_WINDOWS = frozenset(
    {"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATH", "PATHEXT"}
    | {"PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PSMODULEPATH"}
    | {"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR"}
)
_INHERITED_IN_ANY_CASE = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_PREFIXES = ("LC_", "XDG_", "UV_")
_NPM_PREFIX = "npm_config_"
_SECRET_MARKS = (
    *("auth", "token", "password", "passwd", "publish", "username", "email", "otp", "_key"),
    *("secret", "credential", "cookie"),
)
# The value of an exported bash function, which a shell in the child would run.
_SHELL_FUNCTION = "() {"
# A login in the URL of a proxy, an index or a registry, at any position in a list of URLs. With `ssh://` a user name
# alone is no login. A proxy may be written without its scheme.
_LOGIN = re.compile(
    r"(?<![A-Za-z])(?!ssh:)[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#]*@|://[^\s/?#@]*:[^\s/?#]*@|^[^\s/:@]+:[^\s/@]+@"
    r"|[?&][^\s=&]*(?:token|key|secret|password|auth)[^\s=&]*=[^\s&]",
    re.IGNORECASE,
)


def child_environment(parent: Mapping[str, str], launch_env: Mapping[str, Secret]) -> dict[str, str]:
    """Return the environment of a server: the inherited part of `parent`, overridden by the variables of the tool."""
    child = {
        name: value
        for name, value in parent.items()
        if _is_inherited(name) and not value.startswith(_SHELL_FUNCTION) and not _LOGIN.search(value)
    }
    return child | {name: secret.reveal() for name, secret in launch_env.items()}


def withheld_variables(parent: Mapping[str, str], launch_env: Mapping[str, Secret]) -> list[str]:
    """Return the names of variables that are not inherited because they contain a login and the tool sets none."""
    return sorted(
        name
        for name, value in parent.items()
        if _is_inherited(name) and _LOGIN.search(value) and name not in launch_env
    )


def _drop_node_stack(lines: list[str]) -> list[str]:
    """Return the lines of a program of Node.js up to the message of the error that ended it; any others as they are."""
    frames = [number for number, line in enumerate(lines) if _NODE_FRAME.match(line)]
    if not frames or not _NODE_END.fullmatch(lines[-1]):
        return lines
    return [line for number, line in enumerate(lines[: frames[-1]]) if number not in frames]


def _is_inherited(name: str) -> bool:
    lower = name.lower()
    if name in _INHERITED or lower in _INHERITED_IN_ANY_CASE or name.upper() in _INHERITED_ON_WINDOWS:
        return True
    is_setting = name.startswith(_PREFIXES) or lower.startswith(_NPM_PREFIX)
    return is_setting and not any(mark in lower for mark in _SECRET_MARKS)
