"""What the programs of MCP clients in Python share: `python NAME.py URL KEY COMMAND...`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

URL, KEY, *COMMAND = sys.argv[1:]
ADDRESS = f"{URL}/mcp"
OTHER_KEY = "hd-nobody"
# The status, the gateway's own words for it, or those of a client that takes it for a request to log in.
REFUSALS = ("401", "Incorrect API key provided", "auth_required", "Auth required")

Outcome = tuple[list[str], str]
"""The names of the tools, and the sum of 1 and 2."""


def use_all(
    use_stdio: Callable[[], Awaitable[tuple[list[str], str]]],
    use_http: Callable[[str], Awaitable[tuple[list[str], str]]],
) -> None:
    """Use both ways, and print what came back. `use_http` gets the key."""
    asyncio.run(_use_all(use_stdio, use_http))


async def _use_all(
    use_stdio: Callable[[], Awaitable[tuple[list[str], str]]],
    use_http: Callable[[str], Awaitable[tuple[list[str], str]]],
) -> None:
    answers = {}
    for way, use in (("stdio", use_stdio()), ("HTTP", use_http(KEY))):
        names, total = await use
        answers[f"tools over {way}"] = ", ".join(sorted(names))
        answers[f"sum over {way}"] = total
    answers["another key"] = await _try_key(use_http)
    print(json.dumps(answers))


async def _try_key(use_http: Callable[[str], Awaitable[Outcome]]) -> str:
    try:
        await use_http(OTHER_KEY)
    except BaseException as error:
        said = _describe(error)
        return "refused" if any(word in said for word in REFUSALS) else f"not refused: {said}"
    return "accepted"


def _describe(error: BaseException) -> str:
    """The error with all that are in it: some clients raise groups, or hide the cause. It may lead back to itself."""
    found, waiting = [], [error]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.append(each)
            waiting += getattr(each, "exceptions", ())
            waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
    return " ".join(f"{type(each).__name__}: {each}" for each in found)
