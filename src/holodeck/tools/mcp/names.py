"""Names of MCP tools for models: letters, digits, `_` and `-`, at most 64 characters, unique and stable.

The name of a tool depends on the order of the servers in the configuration and on their lists, never on which server
answers first:

- A tool has its bare name if no server configured earlier has that name, or might have it. A server that has not
  listed its tools yet might have any. A server that is down keeps the names of its latest list.
- Every other tool is offered under its full name, `server__tool`.
- A bare name that begins with `other__`, where `other` is another server of the configuration, is not used: it would
  read as a tool of that server. Such a tool has its full name as well.
- A name that still is not unique gets a hash.
- A request that selects servers changes no names: servers that it does not select are not asked, but count. Servers
  that it declares come last.

So a bare name never leads to a server while one configured earlier has it, and no server takes a name by being
faster or by outliving another. An earlier server that adds a tool later does get its bare name, and the tool that
had it moves to its full name; a run in progress is not affected (see `Toolbox`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS

_INVALID_CHAR = re.compile(r"[^a-zA-Z0-9_]")
_HASH_CHARS = 8


def normalize_tool_name(name: str) -> str:
    """Replace every character that models do not accept by `-`. A name that is too long is cut and gets a hash."""
    # A name of Python has no other characters.
    valid = name if name.isascii() and name.isidentifier() else _INVALID_CHAR.sub("-", name)
    return valid if len(valid) <= MAX_TOOL_NAME_CHARS else _append_hash(valid, name)


def model_names(names: Iterable[str]) -> dict[str, str]:
    """Map the server's own names to names for models; of two that become equal, one gets a hash.

    The order of the list does not matter: a name that is already valid stays, else the first in the alphabet has no
    hash.
    """
    assigned = {name: normalize_tool_name(name) for name in dict.fromkeys(names)}
    used: set[str] = set()
    if len(set(assigned.values())) < len(assigned):
        for name in sorted(assigned, key=lambda name: (assigned[name] != name, name)):
            if assigned[name] in used:
                assigned[name] = _append_hash(assigned[name], name)
            used.add(assigned[name])
    return assigned


def full_name(server: str, model_name: str) -> str:
    """Return `server__tool`, normalised."""
    return normalize_tool_name(f"{server}__{model_name}")


def assign_names(servers: Sequence[tuple[str, Mapping[str, str] | None]]) -> dict[tuple[str, str], str]:
    """Map (server, tool) to the name under which the tool is offered beside those of the other servers.

    `servers`: in the order of the configuration, each with its `model_names`, or None before its first list.
    """
    names: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    listed_earlier: set[str] = set()
    is_all_known = True
    for server, tools in servers:
        if tools is None:
            is_all_known = False
            continue
        of_others = tuple(f"{other}__" for other, _ in servers if other != server)
        for tool, bare in tools.items():
            if is_all_known and bare not in listed_earlier and bare not in used and not bare.startswith(of_others):
                names[server, tool] = bare
        used |= {names[server, tool] for tool in tools if (server, tool) in names}
        for tool, bare in tools.items():
            if (server, tool) not in names:
                name = names[server, tool] = _free_full_name(server, bare, used, of_others)
                used.add(name)
        listed_earlier |= set(tools.values())
    return names


def _free_full_name(server: str, bare: str, used: set[str], of_others: tuple[str, ...]) -> str:
    """Return the full name, with a hash if another tool has it or if it reads as a tool of another server.

    The latter happens to a server named `a__b`: its full names read as tools of server `a`.
    """
    full = name = full_name(server, bare)
    tries = 0
    while name in used or (not tries and full.startswith(of_others)):
        tries += 1
        name = _append_hash(full, f"{server}__{bare}__{tries}")
    return name


def _append_hash(valid: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{valid[: MAX_TOOL_NAME_CHARS - _HASH_CHARS - 1]}-{digest}"
