"""Searches an answer for regular expressions, in a process of its own.

A pattern such as `(a+)+$` can take years on a text that a model chose, and Python cannot interrupt a search. The
process ends itself after its CPU time; the pattern that it was busy with is the one without an answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from holodeck.evaluation.check import CheckResult
from holodeck.lib.limits import KIB
from holodeck.lib.line_splitter import LineSplitter
from holodeck.lib.system.process import spawn_process

# Seconds for all of it, for a process that gets no CPU. It ends itself long before, by its CPU time.
SEARCH_TIMEOUT = 60.0

_PROGRAM = Path(__file__).with_name("pattern_program.py")
_READY = b"ready"


async def check_matches(answer: str, patterns: Sequence[str]) -> CheckResult:
    """Check that each pattern is found in the answer."""
    try:
        found = await _search_patterns(answer, patterns)
    except OSError as error:
        reason = f"the answer could not be searched for patterns: {error}"
        return CheckResult(name="matches", passed=False, reason=reason)
    if len(found) < len(patterns):
        slow = patterns[len(found)]
        reason = f"the search for /{slow}/ in the answer took too long: write the pattern without nested repetition"
        return CheckResult(name="matches", passed=False, reason=reason)
    missing = [f"/{pattern}/" for pattern, is_found in zip(patterns, found, strict=True) if not is_found]
    reason = f"the answer does not match {', '.join(missing)}" if missing else "the answer matches"
    return CheckResult(name="matches", passed=not missing, reason=reason)


async def _search_patterns(text: str, patterns: Sequence[str]) -> list[bool]:
    """Return for each pattern whether it is found, up to the one whose search was ended. Raises `OSError`."""
    lines: list[bytes] = []
    ended = asyncio.Event()
    output = LineSplitter(
        limit=KIB,
        on_line=lambda line: lines.append(bytes(line)),
        on_dropped=lambda *_: None,
        on_end=ended.set,
    )
    argv = [sys.executable, "-I", str(_PROGRAM)]
    process = await spawn_process(argv, env={}, cwd="/", stdout=output, stdin=asyncio.BaseProtocol())
    try:
        async with asyncio.timeout(SEARCH_TIMEOUT):
            # The pipe takes it all before the program reads: the transport buffers what does not fit.
            process.stdin.write(json.dumps({"patterns": list(patterns), "text": text}).encode() + b"\n")
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        process.kill()
        await process.close()
    if not lines or lines[0] != _READY:
        raise OSError("the process that searches for patterns did not start")
    return [line == b"true" for line in lines[1:]]
