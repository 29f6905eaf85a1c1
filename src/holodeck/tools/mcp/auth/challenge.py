"""What a `WWW-Authenticate` header asks for."""

from __future__ import annotations

import re

_PARAMETER = r'(?:^|[\s,]){name}\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s,"]+))'


def challenge_parameter(challenge: str, name: str) -> str:
    """The value of a parameter, such as `error`; empty when there is none."""
    found = re.search(_PARAMETER.format(name=re.escape(name)), challenge, re.IGNORECASE)
    return (found["quoted"] or found["plain"] or "") if found else ""
