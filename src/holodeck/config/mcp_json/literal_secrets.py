"""Secrets that are written into a server entry, replaced by references to variables.

A value counts as a secret by the name of its key or by its form. The variable is called as the environment variable of
the entry, or after the server and the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from holodeck.lib.record import record
from holodeck.lib.redaction import is_secret_name, secrets_in

_SCHEME = re.compile(r"(Bearer|Basic|Token|ApiKey)\s+(?=\S)", re.IGNORECASE)


@record
class ReplacedSecret:
    """A secret that was replaced: its key in the entry, and the variable that has to be set."""

    key: str
    variable: str


def replace_secrets(entry: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[ReplacedSecret, ...]]:
    """Return a server entry in the form of our files without literal secrets, and what was replaced."""
    replacer = _SecretReplacer(str(entry.get("name") or "server"))
    result = dict(entry)
    for key in ("env", "headers", "auth"):
        if isinstance(entry.get(key), Mapping):
            result[key] = {name: replacer.replace_value(key, name, value) for name, value in entry[key].items()}
    if isinstance(entry.get("args"), list):
        result["args"] = replacer.replace_arguments(entry["args"])
    if isinstance(entry.get("url"), str):
        result["url"] = replacer.replace_in_url(entry["url"])
    return result, tuple(replacer.replaced)


def find_secrets(data: Any, key: str = "") -> Iterator[str]:
    """Yield the literal secrets in a value of a configuration file, for masking. `key` is the key of the value."""
    if isinstance(data, Mapping):
        for name, item in data.items():
            yield from find_secrets(item, str(name))
    elif isinstance(data, list):
        for item in data:
            yield from find_secrets(item, key)
    elif isinstance(data, str) and _is_literal(data):
        yield from secrets_in(key, data)


class _SecretReplacer:
    def __init__(self, server: str) -> None:
        self.replaced: list[ReplacedSecret] = []
        self._server = server

    def replace_value(self, key: str, name: str, value: Any) -> Any:
        """Return the value of an environment variable, a header or a key of `auth`, or a reference to it."""
        if not isinstance(value, str) or not _is_literal(value) or not secrets_in(name, value):
            return value
        if key == "auth" and not is_secret_name(name):
            return value
        scheme = _SCHEME.match(value) if key == "headers" else None
        is_token = key == "auth" or (scheme is not None and name.lower() == "authorization")
        variable = name if key == "env" else self._variable_for("token" if is_token else name)
        return (scheme[0] if scheme else "") + self._refer(f"{key}.{name}", variable)

    def replace_arguments(self, args: list[Any]) -> list[Any]:
        """Return the arguments, with references for the values of options that are named like secrets."""
        result: list[Any] = []
        option = ""
        for index, arg in enumerate(args):
            name, equals, value = arg.partition("=") if isinstance(arg, str) else ("", "", "")
            is_option = name.startswith("-") or (bool(equals) and name.isidentifier())
            if is_option and equals and value and _is_literal(value) and is_secret_name(name):
                result.append(f"{name}={self._refer(f'args[{index}]', self._variable_for(name))}")
            elif isinstance(arg, str) and arg and not is_option and is_secret_name(option) and _is_literal(arg):
                result.append(self._refer(f"args[{index}]", self._variable_for(option)))
            else:
                result.append(arg)
            option = name if name.startswith("--") and not equals else ""
        return result

    def replace_in_url(self, url: str) -> str:
        """Return the URL with references for its password and for the values of its query that are secrets."""
        try:
            parts = urlsplit(url)
            found = [(parts.username or "password", parts.password)] if parts.password else []
        except ValueError:
            return url
        found += [(name, value) for name, value in parse_qsl(parts.query) if secrets_in(name, value)]
        for name, value in found:
            if value and _is_literal(value) and value in url:
                url = url.replace(value, self._refer("url", self._variable_for(name)))
        return url

    def _refer(self, key: str, variable: str) -> str:
        self.replaced.append(ReplacedSecret(key=key, variable=variable))
        return f"${{{variable}}}"

    def _variable_for(self, name: str) -> str:
        text = re.sub(r"[^A-Za-z0-9]+", "_", f"{self._server}_{name}").strip("_").upper()
        return text if text[:1].isalpha() else f"SERVER_{text}"


def _is_literal(value: str) -> bool:
    return "${" not in value
