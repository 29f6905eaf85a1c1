"""The program that `patterns` runs in a separate process, so that a search that does not end can be ended.

It writes the line `ready`, reads one line of input, `{"patterns": [...], "text": ...}`, and answers with one line for
each pattern, in order: `true` if the pattern is found in the text. It imports nothing of holodeck, and limits its own
CPU time and memory.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import warnings

# Seconds of CPU time, after which the kernel ends the program. It counts no waiting, so a busy machine changes nothing.
_MAX_CPU_SECONDS = 2
# Bytes of address space: a search with many alternatives cannot exhaust the machine.
_MAX_MEMORY = 1024 * 1024 * 1024


def main() -> None:
    """Answer one request."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A pattern that is only questionable was accepted when the file was read.
    warnings.simplefilter("ignore")
    _write_line("ready")
    request = json.loads(sys.stdin.buffer.readline())
    for pattern in request["patterns"]:
        _write_line("true" if re.search(pattern, request["text"]) else "false")


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
