"""Names for MCP servers without one, and for servers whose name has characters that tool names cannot have."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS

_FILLERS = frozenset({"mcp", "server", "www", "api", "com", ""})
_VALUE_FLAGS = frozenset(
    {"-e", "--env", "-v", "--volume", "--mount", "--name", "-p", "--publish", "--network", "-w", "--workdir", "-u"}
)
_SCRIPT_SUFFIX = re.compile(r"\.(?:py|js|cjs|mjs|ts)$")


def name_for(text: str) -> str:
    """Return a name made from a package or host: `@scope/mcp-server-x@1.2` becomes `x`."""
    last = re.split(r"[@=\[:]", text.removeprefix("@").split("/")[-1])[0]
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", last) if part.lower() not in _FILLERS]
    name = "_".join(parts).lower()[:MAX_TOOL_NAME_CHARS]
    return name if name[:1].isalpha() else f"server_{name}".rstrip("_")


def name_for_command(argv: Sequence[str]) -> str:
    """Return a name made from the package, image or script in a command line."""
    arguments = list(argv[1:])
    while arguments and (arguments[0].startswith("-") or arguments[0] == "run"):
        flag = arguments.pop(0)
        if flag in _VALUE_FLAGS and arguments:
            arguments.pop(0)
    return name_for(_SCRIPT_SUFFIX.sub("", arguments[0])) if arguments else "server"


def make_unique_name(written: str, used_names: Container[str]) -> str:
    """Return the written name with invalid characters replaced, and with a number if the result is in `used_names`."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", written).strip("-")
    name = (name if name[:1].isalpha() else f"server-{name}".rstrip("-"))[:MAX_TOOL_NAME_CHARS]
    candidate, number = name, 1
    while candidate in used_names:
        number += 1
        candidate = f"{name[: MAX_TOOL_NAME_CHARS - len(str(number)) - 1]}-{number}"
    return candidate
