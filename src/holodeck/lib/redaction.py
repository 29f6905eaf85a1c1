"""Finds the operator's secrets in configured values, and masks them where text leaves the process.

Every rule about the names and forms of secrets is here, from the widest to the narrowest:

- `is_secret_name`: the name has a word of secrets anywhere. For masking, where too much does no harm.
- `ends_in_secret_word`: the value of the name is itself the secret. For literals that should be references.
- `is_inert_secret`: the value is a secret and nothing else, so that another one does nothing else. For trust.
- `is_secret_parameter`, `is_literal_secret`, `find_secret_arguments`: for lint, where a false alarm is a fault.

`mask_written`, `mask_arguments` and `mask_url` mask literal secrets of configuration files, for every screen.
`SecretText` masks a set of secrets. The process has two of them, filled while configuration files are read:
`LOG_SECRETS` has every value that a variable put into a header, a URL or a secret field, and is masked in the log.
`OPERATOR_SECRETS` has those of them that are secrets by their name or form, and is also masked in what MCP servers
send: a tenant or a region in a header is data there.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

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
_SECRET_NAME = re.compile(
    # `auth`, but not `author` and `authority`.
    r"key|token|secret|passw|passphrase|pwd|credential|auth(?!or)|authori[sz]ation|cookie|signature|(?:^|_)pat$",
    re.IGNORECASE,
)
# People choose these, so that a value need not look like a secret to be one.
_CHOSEN_WORDS = r"passw(?:or)?d|passphrase|[_-]pwd|authori[sz]ation|cookie"
# Programs make these.
_MADE_WORDS = r"api[_-]?key|key|token|secret|credentials?"
_LAST_WORD = re.compile(rf"(?:^|[_-])(?P<generated>{_MADE_WORDS})$|(?P<chosen>{_CHOSEN_WORDS})$", re.IGNORECASE)
_LAST_AUTH = re.compile(r"(?:^|[_-])auth$", re.IGNORECASE)
_SWITCH_NAME = re.compile(
    r"(?:^|_|-)(?:disable|enable|allow|skip|use|require|no|is|has|ignore|bypass|without|with)[sd]?[_-]", re.IGNORECASE
)
_SWITCH_VALUE = re.compile(
    r"|true|false|yes|no|on|off|none|null|any|all|always|never|auto|enabled?|disabled?|\d{1,5}", re.IGNORECASE
)
_SECRET_KEYS = frozenset({"api_key", "token", "client_secret", "seal_key"})
"""Keys of our own files whose values are sent as they are, and never read."""
# Nobody protects anything with less.
_MIN_USED_CHARS = 4
# Letters and digits of a value that no person has written as a word.
_MIN_GENERATED_CHARS = 16
_MIN_DIFFERENT_CHARS = 8
# Runs of small letters, capitals and digits, for each letter or digit: words have fewer.
_MIN_CHANGES = 0.25
_KINDS = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_PARAMETER = re.compile(
    r"(?!(?:has|is|no|use|require|allow)_)(?:.*_)?"
    # No other tokens: `page_token` and `next_token` are positions in a list.
    r"(?:api_?keys?|passw(?:or)?d|passphrase|credentials?|client_secret|id_rsa|(?:private|secret|ssh|signing)_key"
    r"|(?:access|auth|api|bearer|refresh|session|oauth|bot|github|gitlab|slack)_token)"
    r"|token|secret|access_key|secret_access_key"
)
# Forms that issuers chose so that their secrets are recognised. A long mix of letters and digits may be an identifier.
_ISSUED_KEY = (
    r"(?:[sr]k[-_](?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_ISSUED = re.compile(rf"{_ISSUED_KEY}|-----BEGIN .*|Bearer \S{{8,}}", re.DOTALL)
_ISSUED_IN_TEXT = re.compile(
    # Also after a line break that is escaped in JSON.
    rf"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])){_ISSUED_KEY}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/@:\s]*:[^/@\s]+@")
_MIN_LITERAL_CHARS = 8
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)
# Words of MCP and of JSON Schema: a setting such as `AUTH: required` is no secret, and masking it changes messages.
_PROTOCOL_WORDS = frozenset(
    {"required", "optional", "forbidden", "complete", "completed", "cancelled", "supported", "disabled", "properties"}
    | {"description", "annotations", "structuredContent", "elicitation", "sampling", "resources", "notifications"}
)
_OPAQUE = frozenset({"nextCursor", "requestState"})
"""Members of an MCP message that are sent back unchanged and never shown."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable, header, option or query parameter of this name has a secret value."""
    return _SECRET_NAME.search(name) is not None


def ends_in_secret_word(name: str) -> bool:
    """Return whether the last word of a name is that of a secret: `SLACK_TOKEN`, but not `TOKEN_URL`."""
    return _LAST_WORD.search(name) is not None


def is_inert_secret(name: str, value: str) -> bool:
    """Return whether the value of a key is a secret, of which another one does nothing else.

    The key must end in a secret's word, and the value must look generated, unless people choose such secrets. What
    switches something, such as `DISABLE_AUTH` or `API_KEY=off`, is no secret; neither is a place.
    """
    if is_place(value) or is_switch(name, value) or len(value.strip()) < _MIN_USED_CHARS:
        return False
    if name in _SECRET_KEYS or _LAST_AUTH.search(name):
        return True
    last = _LAST_WORD.search(name)
    return last is not None and (last["chosen"] is not None or looks_generated(value))


def is_switch(name: str, value: str) -> bool:
    """Return whether a value switches something, by the name of its key or by its form."""
    return _SWITCH_NAME.search(name) is not None or _SWITCH_VALUE.fullmatch(value.strip()) is not None


def is_place(value: str) -> bool:
    """Return whether a value is an address or a path, whatever the name of its key says."""
    return "://" in value or value.lstrip().startswith(("/", "~", "."))


def looks_generated(value: str) -> bool:
    """Return whether a program has made a value: it has the form of an issuer, or a long mix of characters."""
    text = value.rsplit(maxsplit=1)[-1] if value.split() else ""
    if _ISSUED.fullmatch(value) or _ISSUED.fullmatch(text):
        return True
    if len(text) < _MIN_GENERATED_CHARS or len(set(text)) < _MIN_DIFFERENT_CHARS:
        return False
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", text) if len(part) >= _MIN_GENERATED_CHARS]
    if any(re.search(r"\d", part) and re.search(r"[A-Za-z]", part) for part in parts):
        return True
    plain = re.sub(r"[^A-Za-z0-9]+", "", text)
    return len(_KINDS.findall(plain)) >= _MIN_CHANGES * len(plain) > 0


def mask_issued_keys(text: str) -> str:
    """Return a text without the keys in it that have the form of their issuer, such as those of clouds."""
    return _ISSUED_IN_TEXT.sub(MASK, text)


def is_secret_parameter(name: str) -> bool:
    """Return whether the value of a parameter or option of this name is a secret: `apiKey`, `--auth-token`."""
    return _PARAMETER.fullmatch("_".join(filter(None, _WORD_BORDER.split(name))).lower()) is not None


def is_literal_secret(option: str, value: str) -> bool:
    """Return whether the value of an option is a secret by its own form or by the name of the option."""
    # `${NAME}` is where a secret comes from, not the secret.
    if "${" in value:
        return False
    if _ISSUED.fullmatch(value) or _URL_PASSWORD.match(value):
        return True
    is_named = len(value) >= _MIN_LITERAL_CHARS and is_secret_parameter(option)
    return is_named and not value.startswith(("/", "~", "./", "-"))


def find_secret_arguments(args: Sequence[str]) -> Iterator[int]:
    """Yield the index of each argument with a secret: `--api-key VALUE`, `--token=VALUE`, `-e NAME=VALUE`."""
    option = ""
    for index, arg in enumerate(args):
        assigned = _ASSIGNMENT.fullmatch(arg)
        if is_literal_secret(option, arg) or (assigned and is_literal_secret(assigned["name"], assigned["value"])):
            yield index
        option = arg if arg.startswith("-") else ""


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
        fresh = [
            value
            for value in values
            if len(value) >= self._min_chars and value not in self._values and value not in _PROTOCOL_WORDS
        ]
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
