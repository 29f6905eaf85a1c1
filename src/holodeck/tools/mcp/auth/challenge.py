"""What a `WWW-Authenticate` header asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PARAMETER = r'(?:^|[\s,]){name}\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s,"]+))'


def parameter(challenge: str, name: str) -> str:
    """The value of a parameter, such as `error`; empty when there is none."""
    found = re.search(_PARAMETER.format(name=re.escape(name)), challenge, re.IGNORECASE)
    return (found["quoted"] or found["plain"] or "") if found else ""


def with_scopes(challenge: str, scopes: Iterable[str]) -> str:
    """The same challenge, asking for these scopes too."""
    asked = parameter(challenge, "scope").split()
    wanted = " ".join(dict.fromkeys([*asked, *scopes]))
    if not wanted or wanted == " ".join(asked):
        return challenge
    if asked:
        return challenge.replace(parameter(challenge, "scope"), wanted, 1)
    return f'{challenge}, scope="{wanted}"' if "=" in challenge else f'{challenge or "Bearer"} scope="{wanted}"'
