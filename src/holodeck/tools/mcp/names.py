"""Tool names that every model accepts: letters, digits, `_`, `-`, at most 64 characters, unique, always the same.

Which tool has which name depends on the order of the servers in the configuration and on what they list, never on
which of them answers first:

- A tool has its bare name if no server configured earlier has that name, or might have it. A server that has not
  listed its tools yet might have any. One that listed them and is down now keeps the names of its latest list.
- Every other tool is offered under its full name, `server__tool`.
- A bare name that begins with `other__`, where `other` is another server of the configuration, is never given: it
  would read as a tool of that server. Such a tool has its full name, too.
- What is still the same name gets a hash.
- A request that selects servers changes no names: those that it leaves out are not asked, but count. Servers that it
  brings along come last.

So a bare name never leads to a server while one configured earlier has it, and no server takes a name by being
faster or by outliving another. An earlier server that adds a tool later does get its bare name, and the tool that
had it moves to its full name; a run under way is not affected (see `Toolbox`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_HASH_CHARS = 8


def normalize_tool_name(name: str) -> str:
    """Every other character becomes `-`; a name that is too long is cut and gets a hash of the whole."""
    fit = _UNFIT.sub("-", name)
    return fit if len(fit) <= MAX_TOOL_NAME_CHARS else _append_hash(fit, name)


def model_names(names: Iterable[str]) -> dict[str, str]:
    """From the server's own names to names for the model; of two that would become the same, one gets a hash.

    The order of the list does not matter: a name that needs no change keeps it, else the first in the alphabet does.
    """
    own = list(dict.fromkeys(names))
    given: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(own, key=lambda name: (normalize_tool_name(name) != name, name)):
        fit = normalize_tool_name(name)
        given[name] = fit if fit not in taken else _append_hash(fit, name)
        taken.add(given[name])
    return {name: given[name] for name in own}


def full_name(server: str, model_name: str) -> str:
    """`server__tool`."""
    return normalize_tool_name(f"{server}__{model_name}")


def assign_names(servers: Sequence[tuple[str, Mapping[str, str] | None]]) -> dict[tuple[str, str], str]:
    """From (server, tool) to the names under which the tools of several servers are offered together.

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
    """The full name, with a hash where another tool has it, or a server named `a__b` could: then it is `a`'s tool."""
    full = name = full_name(server, bare)
    tries = 0
    while name in used or (not tries and full.startswith(of_others)):
        tries += 1
        name = _append_hash(full, f"{server}__{bare}__{tries}")
    return name


def _append_hash(fit: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{fit[: MAX_TOOL_NAME_CHARS - _HASH_CHARS - 1]}-{digest}"
