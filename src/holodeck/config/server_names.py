"""What a server is called when nobody named it, or when its name has characters that ours may not have."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS

_FILLERS = frozenset({"mcp", "server", "www", "api", "com", ""})
_VALUE_FLAGS = frozenset(
    {"-e", "--env", "-v", "--volume", "--mount", "--name", "-p", "--publish", "--network", "-w", "--workdir", "-u"}
)


def name_for(text: str) -> str:
    """A name made from a package or host: `@scope/mcp-server-x@1.2` becomes `x`."""
    last = re.split(r"[@=\[:]", text.removeprefix("@").split("/")[-1])[0]
    words = [word for word in re.split(r"[^A-Za-z0-9]+", last) if word.lower() not in _FILLERS]
    name = "_".join(words).lower()[:MAX_TOOL_NAME_CHARS]
    return name if name[:1].isalpha() else f"server_{name}".rstrip("_")


def name_for_command(argv: Sequence[str]) -> str:
    """A name made from the package or image in a command line."""
    words = list(argv[1:])
    while words and (words[0].startswith("-") or words[0] == "run"):
        flag = words.pop(0)
        if flag in _VALUE_FLAGS and words:
            words.pop(0)
    return name_for(words[0]) if words else "server"


def make_unique_name(written: str, taken: Container[str]) -> str:
    """The written name with each character that ours may not have replaced, and unlike every name that is taken."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", written).strip("-")
    name = (name if name[:1].isalpha() else f"server-{name}".rstrip("-"))[:MAX_TOOL_NAME_CHARS]
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name[: MAX_TOOL_NAME_CHARS - len(str(number)) - 1]}-{number}"
    return candidate
