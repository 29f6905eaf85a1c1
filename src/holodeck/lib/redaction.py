"""The operator's secrets as text: what of a value is one, and a mask over it where text leaves the process.

`SecretText` masks a set of secrets. Two of them belong to the process, and are filled when a file is read:
`LOG_SECRETS` is everything that came out of a variable into a header, a URL or the place of a secret, and is masked in
the log. `OPERATOR_SECRETS` is the part of it that is a secret by its name or look, and is also masked in what servers
send (`tools/mcp/faults.py`): there, a tenant or a region that stands in a header is data.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK = "***"
MIN_SECRET_CHARS = 8
"""Shorter values are ordinary words, and masking those would destroy what is shown."""
_MAX_REGISTERED = 1000  # far more than files have; a program that reads files for ever forgets the oldest
_MIN_NEEDLE_BYTES = (
    4  # of letters and digits: a shorter run is in every message, and the message is then looked through
)
_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|pwd|credential|auth(?!or)|cookie|signature|(?:^|_)pat$", re.IGNORECASE
)
_GENERATED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[!-~]{20,}|[0-9a-f]{32,}|[0-9A-F]{32,}")
_RUN = re.compile(rb"[A-Za-z0-9]+")
_OPAQUE = frozenset({"nextCursor", "requestState"})
"""Members of a message that are sent back as they came, and shown to nobody."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, header, option or query parameter of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(name: str, value: str) -> list[str]:
    """What of a value is a secret: all of it by its name or by its look, or what a URL holds besides its address."""
    if value.startswith(("/", "~", "./")) and not is_secret_name(name):
        return []
    found = url_secrets(value)
    if is_secret_name(name) or ("://" not in value and _GENERATED.fullmatch(value)):
        found.append(value)
        # `Bearer x`, `Basic x`, `token x`: servers repeat the credentials without their scheme.
        found += [part for part in value.split() if part != value]
    return found


def url_secrets(url: str) -> list[str]:
    """The pieces of a URL that are secrets: password, query, fragment, and parts that are one by name or look."""
    if "://" not in url:
        return []
    try:
        parts = urlsplit(url)
        pieces = [parts.password or "", parts.fragment, parts.query]
    except ValueError:
        return [url]
    if parts.username is not None and parts.password is None:
        pieces.append(parts.username)
    pieces += [value for name, value in parse_qsl(parts.query) if is_secret_name(name) or _GENERATED.fullmatch(value)]
    pieces += [segment for segment in parts.path.split("/") if _GENERATED.fullmatch(segment)]
    return [piece for piece in pieces if piece]


class SecretText:
    """Masks a bounded set of secrets in text and in messages. The oldest is forgotten first."""

    def __init__(
        self, values: Iterable[str] = (), *, min_chars: int = MIN_SECRET_CHARS, max_values: int = _MAX_REGISTERED
    ):
        self._min_chars = min_chars
        self._max_values = max_values
        self._values: OrderedDict[str, None] = OrderedDict()
        self._longest_first: tuple[str, ...] = ()
        self._needles: tuple[bytes, ...] = ()
        self.add(*values)

    def add(self, *values: str) -> None:
        """Mask these values from now on, also where they are written percent-encoded or inside of JSON."""
        fresh = [value for value in values if len(value) >= self._min_chars and value not in self._values]
        if not fresh:
            return
        self._values.update(dict.fromkeys(fresh))
        while len(self._values) > self._max_values:
            self._values.popitem(last=False)
        forms = {form for value in self._values for form in _encoded_forms(value)}
        self._longest_first = tuple(sorted(forms, key=len, reverse=True))
        self._needles = tuple({_needle_of(value) for value in self._values})

    def mask(self, text: str) -> str:
        """The text without these secrets."""
        for value in self._longest_first:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def may_be_in(self, raw: bytes | bytearray) -> bool:
        """Whether one of them may be in there; one pass over the bytes for each. False is certain."""
        return any(needle in raw for needle in self._needles)

    def mask_message(self, message: Any) -> Any:
        """Mask a decoded JSON value in place, also in the names of members, and return it, however deep it is."""
        if isinstance(message, str):
            return self.mask(message)
        waiting: list[Any] = [message] if isinstance(message, dict | list) else []
        while waiting:
            node = waiting.pop()
            for key, item in list(node.items() if isinstance(node, dict) else enumerate(node)):
                if isinstance(key, str) and self.mask(key) != key:
                    del node[key]
                    key = self.mask(key)  # noqa: PLW2901 - from here on it is this one's name
                    node[key] = item
                if isinstance(item, str) and key not in _OPAQUE:
                    node[key] = self.mask(item)
                elif isinstance(item, dict | list):
                    waiting.append(item)
        return message


def _encoded_forms(value: str) -> set[str]:
    try:
        return {value, quote(value, safe=""), unquote(value), json.dumps(value, ensure_ascii=False)[1:-1]}
    except UnicodeEncodeError:  # bytes of the environment that are no text
        return {value}


def _needle_of(value: str) -> bytes:
    """What is in the bytes of every message that has the value, however its JSON is written."""
    raw = value.encode("utf-8", "surrogatepass")
    longest = max(_RUN.findall(raw), key=len, default=b"")
    return longest if len(longest) >= _MIN_NEEDLE_BYTES else raw


LOG_SECRETS = SecretText()
OPERATOR_SECRETS = SecretText()


def register_secrets(*values: str) -> None:
    """These are secrets of the operator, wherever they appear."""
    LOG_SECRETS.add(*values)
    OPERATOR_SECRETS.add(*values)
