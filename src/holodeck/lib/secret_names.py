"""Which names and values are those of secrets. Every rule about that is here, from the widest to the narrowest.

- `is_secret_name`: the name has a word of secrets anywhere. For masking, where too much does no harm.
- `ends_in_secret_word`: the value of the name is itself the secret. For literals that should be references.
- `is_inert_secret`: the value is a secret and nothing else, so that another one does nothing else. For trust.
- `is_secret_parameter`, `is_literal_secret`, `find_secret_arguments`: for lint, where a false alarm is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SECRET_NAME = re.compile(
    # `auth`, but not `author` and `authority`.
    r"key|token|secret|passw|passphrase|pwd|credential|auth(?!or)|authori[sz]ation|cookie|signature|(?:^|_)pat$",
    re.IGNORECASE,
)
# People choose these, so that a value need not look like a secret to be one.
_CHOSEN = r"passw(?:or)?d|passphrase|[_-]pwd|authori[sz]ation|cookie"
# Programs make these.
_GENERATED = r"api[_-]?key|key|token|secret|credentials?"
_LAST_WORD = re.compile(rf"(?:^|[_-])(?P<generated>{_GENERATED})$|(?P<chosen>{_CHOSEN})$", re.IGNORECASE)
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
_MIN_SECRET_CHARS = 4
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
_ISSUED = re.compile(
    r"(?=\D*\d)[sr]k[-_][A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|-----BEGIN .*|Bearer \S{8,}",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/@:\s]*:[^/@\s]+@")
_MIN_LITERAL_CHARS = 8
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)


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
    if is_place(value) or is_switch(name, value) or len(value.strip()) < _MIN_SECRET_CHARS:
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
