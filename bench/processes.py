"""CPU and memory of a process and its children, servers that print their URL, and other revisions of this tree."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_STOP_SECONDS = 60
_ENDED_SECONDS = 30.0  # for processes that were killed, on a busy machine
_CPU_CLOCK_OF_PROCESS = 2


def process_tree(pid: int) -> list[int]:
    """A process and everything it has started that still runs."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def cpu_seconds(pid: int, *, without: Collection[int] = ()) -> float:
    """Seconds of CPU of a process tree, finer than the hundredths in /proc. `without`: processes that do not count."""
    counted = [one for one in process_tree(pid) if one not in without]
    return sum(time.clock_gettime((~one << 3) | _CPU_CLOCK_OF_PROCESS) for one in counted)


def resident_bytes(pid: int) -> int:
    """Bytes of memory that a process tree holds. Socket buffers of the kernel do not count."""
    size = os.sysconf("SC_PAGE_SIZE")
    return sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) * size for one in process_tree(pid))


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


async def wait_ended(pids: Collection[int]) -> set[int]:
    """Wait until none of these processes runs, and return those that still do after half a minute."""
    deadline = time.monotonic() + _ENDED_SECONDS
    while left := {pid for pid in pids if is_alive(pid)}:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    return left


def count_open_files(pid: int) -> int:
    """Files and connections that a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@contextmanager
def run_server(
    command: Sequence[str], *, environ: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Iterator[tuple[int, str]]:
    """A server that prints its address in its first line: the id of its process, and the address."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **(environ or {})},
    )
    with stop_at_end(process):
        line = process.stdout.readline().strip() if process.stdout is not None else ""
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended before it served")
        yield process.pid, line


@contextmanager
def stop_at_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """The process has ended afterwards, whatever happens."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of this environment."""
    return [sys.executable, "-m", name, *arguments]


def check_out(revision: str) -> Path:
    """Return the folder of a revision, checked out once below `.cache`. Exits with a message where there is none."""
    git = ["git", "-C", str(ROOT)]
    asked = [*git, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    commit = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()
    if not commit:
        sys.exit(f"There is no revision '{revision}' in this clone.")
    folder = ROOT / ".cache" / "revisions" / commit
    if not folder.exists():
        folder.mkdir(parents=True)
        archive = subprocess.run([*git, "archive", commit, "src"], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
