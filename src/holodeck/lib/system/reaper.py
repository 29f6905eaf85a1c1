"""Ends the process groups and containers of children when this process dies without cleaning up.

A parent-death signal reaches only the direct child, and `npx` and `uvx` run the real server as a grandchild. So this
process starts one small shell that reads a pipe from it. The kernel closes the pipe however this process ends, and the
shell then kills the groups and removes the containers on its list. `watch` and `unwatch` maintain that list.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from contextlib import suppress

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
            with suppress(OSError):
                self._shell.stdin.write(f"{line}\n".encode())


REAPER = Reaper()
