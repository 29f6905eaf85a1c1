"""Finds the operator's secrets in configured values, and masks them where text leaves the process.

`SecretText` masks a set of secrets. The process has two of them, filled while configuration files are read:
`LOG_SECRETS` has every value that a variable put into a header, a URL or a secret field, and is masked in the log.
`OPERATOR_SECRETS` has those of them that are secrets by their name or form, and is also masked in what MCP servers
send: a tenant or a region in a header is data there.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from holodeck.lib.secret_names import (
    ends_in_secret_word,
    find_secret_arguments,
    is_inert_secret,
    is_place,
    is_secret_name,
    is_switch,
    looks_generated,
)

MASK = "***"
MIN_SECRET_CHARS = 8
"""Shorter values are ordinary words, and masking those would destroy the text."""
# Values in one set: far more than configuration files have. A program that reads files forever drops the oldest.
_MAX_REGISTERED = 1000
# Letters and digits of a needle (see `_needle_of`): a shorter run is in almost every message, and filters nothing.
_MIN_NEEDLE_BYTES = 4
_GENERATED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[!-~]{20,}|[0-9a-f]{32,}|[0-9A-F]{32,}")
_MAX_MUTE_CHARS = 2
_REFERENCE = re.compile(r"(?<!\$)\$\{")
_RUN = re.compile(rb"[A-Za-z0-9]+")
_OPAQUE = frozenset({"nextCursor", "requestState"})
"""Members of an MCP message that are sent back unchanged and never shown."""


def secrets_in(name: str, value: str) -> list[str]:
    """Return the secrets in a value: all of it, by its name or form, or the secret components of a URL."""
    if value.startswith(("/", "~", "./")) and not is_secret_name(name):
        return []
    found = url_secrets(value)
    if is_secret_name(name) or ("://" not in value and _GENERATED.fullmatch(value)):
        found.append(value)
        # `Bearer x`, `Basic x`, `token x`: servers repeat the credentials without their scheme.
        found += [part for part in value.split() if part != value]
    return found


def url_secrets(url: str) -> list[str]:
    """Return the secrets in a URL: password, query, fragment, and components that are secrets by name or form."""
    if "://" not in url:
        return []
    try:
        parts = urlsplit(url)
        found = [parts.password or "", parts.fragment, parts.query]
    except ValueError:
        return [url]
    # A name alone may be a token, as in `https://TOKEN@host`; that of a database is a name, and a common word.
    if parts.username is not None and parts.password is None and not parts.scheme.startswith("postgres"):
        found.append(parts.username)
    found += [value for name, value in parse_qsl(parts.query) if is_secret_name(name) or _GENERATED.fullmatch(value)]
    found += [segment for segment in parts.path.split("/") if _GENERATED.fullmatch(segment)]
    return [text for text in found if text]


def mask_written(value: Any, key: str = "") -> Any:
    """Return a value of a configuration file, as written, with `***` for literal secrets. References stay.

    `key`: the key that has the value.
    """
    if isinstance(value, Mapping):
        return {name: mask_written(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        texts = all(isinstance(item, str) for item in value)
        return mask_arguments(value) if key == "args" and texts else [mask_written(item, key) for item in value]
    if not isinstance(value, str) or not value:
        return value
    if "://" in value:
        return mask_url(value)
    is_named = ends_in_secret_word(key) and not is_switch(key, value) and not is_place(value)
    return MASK if _is_literal(value) and (is_named or is_inert_secret(key, value)) else value


def mask_arguments(args: Sequence[str]) -> list[str]:
    """Return the arguments of a command, as written, with `***` for literal secrets."""
    secret = set(find_secret_arguments(args))
    return [
        (f"{arg.partition('=')[0]}={MASK}" if arg.startswith("-") and "=" in arg else MASK)
        if index in secret and "://" not in arg
        else mask_url(arg)
        if "://" in arg
        else arg
        for index, arg in enumerate(args)
    ]


def mask_url(url: str) -> str:
    """Return the URL with `***` for a user or password, for a fragment, and for each secret of its query and path.

    A value of the query is a secret by the name of its parameter, unless it switches something, or by its form. A
    reference to a variable stays.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK

    def mask_pair(pair: str) -> str:
        name, equals, value = pair.partition("=")
        if not equals:
            return MASK if looks_generated(unquote(name)) and _is_literal(name) else pair
        # A name of one or two letters does not say what its value is.
        is_named = is_secret_name(name) or len(name) <= _MAX_MUTE_CHARS
        is_secret = looks_generated(unquote(value)) or (is_named and not is_switch(name, value))
        return f"{name}={MASK}" if is_secret and _is_literal(value) else pair

    query = "&".join(map(mask_pair, parts.query.split("&"))) if parts.query else ""
    user, at, host = parts.netloc.rpartition("@")
    user = MASK if at and _is_literal(user) else user
    path = "/".join(
        MASK if _GENERATED.fullmatch(segment) and _is_literal(segment) else segment for segment in parts.path.split("/")
    )
    fragment = MASK if parts.fragment and _is_literal(parts.fragment) else parts.fragment
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}", path=path, query=query, fragment=fragment))


def _is_literal(text: str) -> bool:
    return _REFERENCE.search(text) is None


class SecretText:
    """Masks a bounded set of secrets in text and in messages. When the set is full, the oldest is dropped."""

    def __init__(
        self, values: Iterable[str] = (), *, min_chars: int = MIN_SECRET_CHARS, max_values: int = _MAX_REGISTERED
    ):
        self._min_chars = min_chars
        self._max_values = max_values
        self._values: OrderedDict[str, None] = OrderedDict()
        self._longest_first: tuple[str, ...] = ()
        self.needles: tuple[bytes, ...] = ()
        """Bytes of which one is in every message that has a secret. Empty: there is no secret to look for."""
        self.add(*values)

    @property
    def values(self) -> tuple[str, ...]:
        """The secrets themselves, without their encoded forms."""
        return tuple(self._values)

    def add(self, *values: str) -> None:
        """Mask these values from now on, also where they are percent-encoded or escaped in JSON."""
        fresh = [value for value in values if len(value) >= self._min_chars and value not in self._values]
        if not fresh:
            return
        self._values.update(dict.fromkeys(fresh))
        while len(self._values) > self._max_values:
            self._values.popitem(last=False)
        forms = {form for value in self._values for form in _encoded_forms(value)}
        self._longest_first = tuple(sorted(forms, key=len, reverse=True))
        self.needles = tuple({_needle_of(value) for value in self._values})

    def mask(self, text: str) -> str:
        """Return the text with every secret replaced by `***`."""
        for value in self._longest_first:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def may_be_in(self, raw: bytes | bytearray) -> bool:
        """Return whether a secret may be in these bytes; False is certain. Costs one scan for each secret."""
        return any(needle in raw for needle in self.needles)

    def mask_message(self, message: Any) -> Any:
        """Mask a decoded JSON value of any depth in place, names of members included, and return it."""
        if isinstance(message, str):
            return self.mask(message)
        queue: list[Any] = [message] if isinstance(message, dict | list) else []
        while queue:
            node = queue.pop()
            for key, item in list(node.items() if isinstance(node, dict) else enumerate(node)):
                if isinstance(key, str) and self.mask(key) != key:
                    del node[key]
                    key = self.mask(key)  # noqa: PLW2901 - the member has this name from here on
                    node[key] = item
                if isinstance(item, str) and key not in _OPAQUE:
                    node[key] = self.mask(item)
                elif isinstance(item, dict | list):
                    queue.append(item)
        return message


def _encoded_forms(value: str) -> set[str]:
    try:
        return {value, quote(value, safe=""), unquote(value), json.dumps(value, ensure_ascii=False)[1:-1]}
    except UnicodeEncodeError:
        # Bytes of the environment that are not UTF-8.
        return {value}


def _needle_of(value: str) -> bytes:
    """Return bytes that occur in every message with this value, however its JSON is escaped."""
    raw = value.encode("utf-8", "surrogatepass")
    longest = max(_RUN.findall(raw), key=len, default=b"")
    return longest if len(longest) >= _MIN_NEEDLE_BYTES else raw


LOG_SECRETS = SecretText()
OPERATOR_SECRETS = SecretText()


def register_secrets(*values: str) -> None:
    """Mask these values in the log and in what MCP servers send."""
    LOG_SECRETS.add(*values)
    OPERATOR_SECRETS.add(*values)
