"""Child processes: how they are started and ended.

`spawn_process` starts a program in a session and process group of its own, with exactly the environment that it is
passed. The caller owns the returned `Process` and closes it. Standard output goes to the caller's protocol; standard
error is always drained, its end can be read, and the caller's protocol for it, if there is one, gets all of it. `close`
closes standard input, then sends TERM, then KILL, each with a bounded wait, always to the whole group, and removes the
container if there is one. When the child itself exits, the rest of its group is killed. Should this process die first,
the reaper ends the group.

The reaper ends the process groups and containers of children when this process dies without cleaning up. A parent-death
signal reaches only the direct child, and `npx` and `uvx` run the real server as a grandchild. So this process starts
one small shell that reads a pipe from it. The kernel closes the pipe however this process ends, and the shell then
kills the groups and removes the containers on its list. `watch` and `unwatch` maintain that list.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import signal
import subprocess
import termios
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from holodeck.lib.limits import KIB
from holodeck.lib.system.memory import hide_memory
from holodeck.lib.tasks import TaskSet

# Seconds to exit after its input is closed: a server that reads its input exits at once.
PROCESS_EOF_GRACE = 2.0
# Seconds to exit after TERM: time to save state.
PROCESS_TERM_GRACE = 2.0
# Seconds to wait after KILL: only the kernel has work to do.
PROCESS_KILL_GRACE = 2.0
# Seconds for `docker rm -f`, which talks to a daemon that may be busy.
CONTAINER_REMOVAL_TIMEOUT = 10.0
# Bytes of standard error in memory: enough for a stack trace, and small for every server.
STDERR_RING_BYTES = 64 * KIB
# Seconds for the shell to send its signals at a normal exit.
REAPER_GRACE = 2.0
# The variables that `docker rm` needs. The watched servers can read the environment of the shell, so it has no keys.
_VARIABLES = (
    *("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_API_VERSION"),
    *("DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_TLS"),
)
_SCRIPT = """
trap '' HUP INT TERM
entries=' '
while read -r sign group container; do
  case $sign in
    +) entries="$entries$group:$container " ;;
    -) rest=' '
       for entry in $entries; do [ "${entry%%:*}" = "$group" ] || rest="$rest$entry "; done
       entries=$rest ;;
  esac
done
for entry in $entries; do kill -s KILL -- "-${entry%%:*}"; done
for entry in $entries; do
  container=${entry#*:}
  [ -z "$container" ] || docker rm -f "$container" </dev/null &
done
"""


class Process:
    """A child process, started with `spawn_process` and closed by its owner."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        *,
        env: Mapping[str, str],
        container: str | None = None,
        on_exit: Callable[[], None] | None = None,
        stderr: asyncio.Protocol | None = None,
    ) -> None:
        self._popen = popen
        self._env = env
        self._notify_exit = on_exit
        self._container = container
        self._stderr = _TailBuffer(stderr)
        self._stdin: asyncio.WriteTransport | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self.exited = asyncio.Event()
        """Set when the child itself has exited; its process group is killed at that moment."""
        self.was_killed = False
        """Whether `close` had to send KILL."""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """The exit status: None while it runs, negative for a signal, as in `subprocess`."""
        return self._popen.returncode

    @property
    def stdin(self) -> asyncio.WriteTransport:
        if self._stdin is None:
            raise BrokenPipeError("the process has no standard input")
        return self._stdin

    def stderr_tail(self) -> bytes:
        """Return the last bytes of standard error, at most `STDERR_RING_BYTES`."""
        return self._stderr.tail

    async def close(self) -> None:
        """Close standard input, then send TERM, then KILL to the whole group, each with a bounded wait."""
        try:
            if self._stdin is not None:
                self._stdin.close()
            if not await self._wait_exited(PROCESS_EOF_GRACE):
                self._signal(signal.SIGTERM)
                if not await self._wait_exited(PROCESS_TERM_GRACE):
                    self.was_killed = True
                    self._signal(signal.SIGKILL)
                    await self._wait_exited(PROCESS_KILL_GRACE)
        finally:
            self.kill()
            for transport in self._transports:
                transport.close()
            if self._container is not None:
                await _remove_container(self._container, self._env)

    def kill(self) -> None:
        """Send KILL to the whole group, without waiting."""
        if not self.exited.is_set():
            self._signal(signal.SIGKILL)

    async def _abandon(self) -> None:
        """End a process whose pipes may be only partly connected, and close all of them."""
        self.kill()
        await self._wait_exited(PROCESS_KILL_GRACE)
        for transport in self._transports:
            transport.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr)[len(self._transports) :]:
            if pipe is not None:
                pipe.close()

    async def _wait_exited(self, seconds: float) -> bool:
        # Never Popen.wait() or pipe EOF: a grandchild that holds the pipe would look like a hang.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    async def _connect(self, stdout: asyncio.Protocol, stdin: asyncio.BaseProtocol) -> None:
        loop = asyncio.get_running_loop()
        self._watch_exit(loop)
        popen = self._popen
        self._stdin, _ = await loop.connect_write_pipe(lambda: stdin, popen.stdin)
        self._transports.append(self._stdin)
        reading, _ = await loop.connect_read_pipe(lambda: stdout, popen.stdout)
        self._transports.append(reading)
        errors, _ = await loop.connect_read_pipe(lambda: self._stderr, popen.stderr)
        self._transports.append(errors)

    def _watch_exit(self, loop: asyncio.AbstractEventLoop) -> None:
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(self._popen.pid)
            loop.add_reader(descriptor, self._on_exit, loop, descriptor)
        else:
            threading.Thread(target=self._wait_in_thread, args=(loop,), daemon=True).start()

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        # The event loop may be closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._on_exit, loop, None)

    def _on_exit(self, loop: asyncio.AbstractEventLoop, descriptor: int | None) -> None:
        if descriptor is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        # The child is still a zombie here, so its group id cannot belong to another process.
        self._signal(signal.SIGKILL)
        self._popen.wait()
        REAPER.unwatch(self._popen.pid)
        self.exited.set()
        if self._notify_exit is not None:
            self._notify_exit()


async def spawn_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdout: asyncio.Protocol,
    stdin: asyncio.BaseProtocol,
    stderr: asyncio.Protocol | None = None,
    on_exit: Callable[[], None] | None = None,
    container: str | None = None,
) -> Process:
    """Start a program with exactly this environment. Raises OSError like `subprocess`.

    `container`: the name of the Docker container that the program runs, removed when the process is closed. `on_exit`
    is called in the event loop when the child has exited. `stderr`: receives standard error as it comes.
    """
    hide_memory()
    popen = subprocess.Popen(  # noqa: ASYNC220 - blocks only until exec, as asyncio's own does
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    REAPER.watch(popen.pid, container)
    process = Process(popen, env=env, container=container, on_exit=on_exit, stderr=stderr)
    # A half-connected pipe has two owners, and both would close it: this step is awaited to its end, never cancelled.
    tasks = TaskSet()
    connecting = tasks.start(process._connect(stdout, stdin))
    try:
        await asyncio.shield(connecting)
    except BaseException:
        await tasks.wait()
        await process._abandon()
        raise
    return process


def count_unread_bytes(pipe: IO[bytes]) -> int:
    """Return the bytes in a pipe that its reader has not read; 0 where the kernel does not tell."""
    count = array("i", [0])
    with suppress(OSError, ValueError):
        fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


class _TailBuffer(asyncio.Protocol):
    """Stores the last `STDERR_RING_BYTES` of a stream, and passes all of it on to `receiver`."""

    def __init__(self, receiver: asyncio.Protocol | None) -> None:
        self.tail = b""
        self._receiver = receiver

    def data_received(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-STDERR_RING_BYTES:]
        if self._receiver is not None:
            self._receiver.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._receiver is not None:
            self._receiver.connection_lost(exc)


async def _remove_container(name: str, env: Mapping[str, str]) -> None:
    """Remove a container with the environment that started it. Best effort: it usually ran with --rm."""
    try:
        popen = subprocess.Popen(  # noqa: ASYNC220
            ["docker", "rm", "-f", name],  # noqa: S607 - found on PATH, as the one that started it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            start_new_session=True,
        )
    except OSError:
        return
    removal = Process(popen, env=env)
    removal._watch_exit(asyncio.get_running_loop())
    try:
        await removal._wait_exited(CONTAINER_REMOVAL_TIMEOUT)
    finally:
        removal.kill()


class Reaper:
    """The list of process groups and containers that must not outlive this process."""

    def __init__(self) -> None:
        self._owner_pid = 0
        self._shell: subprocess.Popen[bytes] | None = None
        self._entries: dict[int, str] = {}

    def watch(self, group: int, container: str | None = None) -> None:
        """Add a process group, and its container if any, to the list."""
        if self._shell is None or self._owner_pid != os.getpid() or self._shell.poll() is not None:
            self._start()
        self._entries[group] = container or ""
        self._send_line(f"+ {group} {container or ''}")

    def unwatch(self, group: int) -> None:
        """Remove a group that has ended from the list; its id may soon be reused."""
        if self._entries.pop(group, None) is not None:
            self._send_line(f"- {group}")

    def _start(self) -> None:
        # After a fork, the entries belong to the parent.
        if self._owner_pid != os.getpid():
            self._entries = {}
        self._owner_pid = os.getpid()
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        for group, container in self._entries.items():
            self._send_line(f"+ {group} {container}")
        atexit.register(self._close_shell, self._shell)

    def _close_shell(self, shell: subprocess.Popen[bytes]) -> None:
        """Have the shell end the children that were not closed, at a normal exit."""
        if self._owner_pid == os.getpid() and shell.stdin is not None:
            shell.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                shell.wait(REAPER_GRACE)

    def _send_line(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            # At the exit of the interpreter, the pipe is closed before the event loop hears that children have ended.
            with suppress(OSError, ValueError):
                self._shell.stdin.write(f"{line}\n".encode())


REAPER = Reaper()
