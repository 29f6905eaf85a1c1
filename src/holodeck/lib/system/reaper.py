"""When we are killed without a chance to clean up, our children's process groups and containers go with us.

A parent-death signal reaches only the direct child, and `npx` and `uvx` run the real server as a grandchild. So one
small shell per process holds a pipe from us: the kernel closes it when we die, however we die, and the shell then ends
what is on its list.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from contextlib import suppress

# For a small shell to send a few signals when we end.
REAPER_GRACE = 2.0


# What `docker rm` needs. The shell is readable by the servers that it watches, so no key of ours is in its environment.
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
    -) kept=' '
       for entry in $entries; do [ "${entry%%:*}" = "$group" ] || kept="$kept$entry "; done
       entries=$kept ;;
  esac
done
for entry in $entries; do kill -s KILL -- "-${entry%%:*}"; done
for entry in $entries; do
  container=${entry#*:}
  [ -z "$container" ] || docker rm -f "$container" </dev/null &
done
"""


class Reaper:
    """The list of process groups that must not outlive us."""

    def __init__(self) -> None:
        self._owner_pid = 0
        self._shell: subprocess.Popen[bytes] | None = None
        self._entries: dict[int, str] = {}

    def watch(self, group: int, container: str | None = None) -> None:
        """From now on this process group, and this container, end when we do."""
        if self._shell is None or self._owner_pid != os.getpid() or self._shell.poll() is not None:
            self._start()
        self._entries[group] = container or ""
        self._send_line(f"+ {group} {container or ''}")

    def unwatch(self, group: int) -> None:
        """The group is gone; its number may soon be somebody else's."""
        if self._entries.pop(group, None) is not None:
            self._send_line(f"- {group}")

    def _start(self) -> None:
        if self._owner_pid != os.getpid():  # after a fork the list is the parent's business
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
        """At a normal exit the shell is told in the same way, and so cleans up what somebody forgot to close."""
        if self._owner_pid == os.getpid() and shell.stdin is not None:
            shell.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                shell.wait(REAPER_GRACE)

    def _send_line(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):
                self._shell.stdin.write(f"{line}\n".encode())


REAPER = Reaper()
