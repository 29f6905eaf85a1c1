"""The common part of a track in a recording and in a replay: ids, the agent's folder, and the secrets to mask.

A cassette is independent of the folder that it was recorded in: the folder is written as `${workspaceFolder}`.

The redactor keeps secrets out of a cassette: known values in any encoding, and values that are secrets by their name or
form. Known values are those that files and variables gave to keys, headers, tokens and the environment of servers, and
the tokens that servers were sent. A recording is redacted when it is written; a replay redacts both sides before it
compares them, so that neither needs the secrets of the other.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holodeck.lib.redaction import (
    LOG_SECRETS,
    MASK,
    MIN_SECRET_CHARS,
    OPERATOR_SECRETS,
    SecretText,
    is_secret_name,
    mask_issued_keys,
    url_secrets,
)
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.errors import ErrorFactory

_FOLDER_NAME = "${workspaceFolder}"
_LITERAL = "$${workspaceFolder}"
_EXPANDED = re.compile(r"\$?\$\{workspaceFolder\}")
# Characters of a folder that is replaced: a shorter one, such as `/`, is in every text.
_MIN_FOLDER_CHARS = 4
# Characters of a value that is a secret by its name: a shorter one occurs in ordinary text.
MIN_NAMED_CHARS = 4
# Characters of a secret in base64, without those at its ends, which also depend on the neighbours.
_MIN_BASE64_CHARS = 10
# Values under the one name `token` that are masked: a shorter one, or one with spaces, is a piece of text.
_MIN_TOKEN_CHARS = 8
_NAME = (
    r"(?:[a-z0-9]+[_-])*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key"
    r"|account[_-]?key|(?:access|refresh|id|auth|bearer|session|api)[_-]?token|authorization|cookie|credentials?)"
)
_SECRET_MEMBER = re.compile(_NAME, re.IGNORECASE)
_MEMBER_TEXT = re.compile(rf'(\\{{0,3}}"{_NAME}\\{{0,3}}"\s*:\s*\\{{0,3}}")[^"\\]+', re.IGNORECASE)
# Where a name begins, also after a line break that is escaped in JSON.
_BEGIN = r"(?:\b|(?<=\\[nrt]))"
_ASSIGNED_TEXT = re.compile(rf"({_BEGIN}{_NAME}[ \t]*[:=][ \t]*)[^\s\"'`,;&\\]{{{MIN_NAMED_CHARS},}}", re.IGNORECASE)
# All of the line: a cookie has several parts, and credentials follow their scheme.
_HEADER_TEXT = re.compile(
    rf"({_BEGIN}(?:set-cookie|cookie|(?:proxy-)?authorization)[ \t]*:[ \t]*)[^\r\n\"\\]+", re.IGNORECASE
)
_QUERY_TEXT = re.compile(rf"([?&](?:{_NAME}|key|token|sig|signature)=)[^&\s\"'#\\]+", re.IGNORECASE)
_BEARER_TEXT = re.compile(r"(\bbearer\s+)[A-Za-z0-9._~+/-]{8,}=*", re.IGNORECASE)
_USERINFO_TEXT = re.compile(r"(://[^/\s:@\"']+:)[^/\s@\"']+(?=@)")
_TEXT_RULES = (_MEMBER_TEXT, _HEADER_TEXT, _ASSIGNED_TEXT, _QUERY_TEXT, _BEARER_TEXT, _USERINFO_TEXT)
# Hexadecimal digits of an id, as many as a random one has.
_ID_DIGITS = 32


class Workspace:
    """Replaces one folder in texts, and puts it back. Until `folder` is set, texts stay as they are."""

    def __init__(self) -> None:
        self._forms: tuple[str, ...] = ()
        self._folder = _FOLDER_NAME

    def set_folder(self, folder: Path) -> None:
        """Use this folder. Only the first one counts: a cassette has one."""
        if self._folder == _FOLDER_NAME:
            self._folder = str(folder.absolute())
            forms = {self._folder, str(folder.resolve())}
            forms |= {Path(form).as_uri().removeprefix("file://") for form in forms}
            long_enough = (form for form in forms if len(form) >= _MIN_FOLDER_CHARS)
            self._forms = tuple(sorted(long_enough, key=len, reverse=True))

    def to_portable(self, value: Any) -> Any:
        """Return plain data without the folder."""
        return map_texts(value, self._replace_folder)

    def to_local(self, value: Any) -> Any:
        """Return plain data of a cassette with the folder of this run."""
        return map_texts(value, self._insert_folder)

    def _replace_folder(self, text: str) -> str:
        text = text.replace(_FOLDER_NAME, _LITERAL)
        for form in self._forms:
            # Not the beginning of the name of another folder.
            text = re.sub(re.escape(form) + r"(?![\w.-])", lambda _: _FOLDER_NAME, text)
        return text

    def _insert_folder(self, text: str) -> str:
        return _EXPANDED.sub(lambda found: _FOLDER_NAME if found[0] == _LITERAL else self._folder, text)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with each text changed, the names of members included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    return value


class Redactor:
    """Masks secrets in texts and in plain data. Knows those of the process, and of every server that is added."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._factories: list[ErrorFactory] = []
        self._masked: frozenset[str] = frozenset()
        self._secrets = SecretText()

    def add_server(self, tool: MCPTool, errors: ErrorFactory) -> None:
        """Mask the values of the definition of a server, and the tokens that the server is sent."""
        for name, secret in (*tool.env.items(), *tool.headers.items()):
            value = secret.reveal()
            if len(value) >= (MIN_NAMED_CHARS if is_secret_name(name) else MIN_SECRET_CHARS):
                self._values |= {value, *(part for part in value.split() if len(part) >= MIN_SECRET_CHARS)}
        for field in ("token", "client_secret"):
            if (configured := getattr(tool.auth, field, None)) is not None:
                self._values.add(configured.reveal())
        self._values |= {part for part in url_secrets(tool.url or "") if len(part) >= MIN_NAMED_CHARS}
        if errors not in self._factories:
            self._factories.append(errors)

    def redact(self, value: Any) -> Any:
        """Return plain data with every secret replaced by `***`. The data itself is not changed."""
        return self._redact(value, self._collect_secrets())

    def _redact(self, value: Any, secrets: SecretText) -> Any:
        if isinstance(value, str):
            return mask_forms(secrets.mask(value))
        if isinstance(value, dict):
            return {
                secrets.mask(key): MASK if _is_secret_member(key, item) else self._redact(item, secrets)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._redact(item, secrets) for item in value]
        return value

    def _collect_secrets(self) -> SecretText:
        tokens = (token for errors in self._factories for token in errors.tokens)
        known = frozenset((*LOG_SECRETS.values, *OPERATOR_SECRETS.values, *self._values, *tokens)) - {MASK}
        if known != self._masked:
            forms = {form for value in known for form in _encode_base64(value)}
            self._masked = known
            self._secrets = SecretText(known | forms, min_chars=MIN_NAMED_CHARS, max_values=len(known | forms))
        return self._secrets


def mask_forms(text: str) -> str:
    """Return a text with the values masked that are secrets by their name or form."""
    for rule in _TEXT_RULES:
        text = rule.sub(rf"\g<1>{MASK}", text)
    return mask_issued_keys(text)


def _is_secret_member(name: str, value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    if name.lower() == "token":
        return len(value) >= _MIN_TOKEN_CHARS and " " not in value
    return _SECRET_MEMBER.fullmatch(name) is not None


def _encode_base64(value: str) -> set[str]:
    """Return what stands for the value in base64, at each of the three positions that it can begin at."""
    raw = value.encode("utf-8", "surrogatepass")
    found: set[str] = set()
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(bytes(offset) + raw).decode()
        middle = encoded[first : (offset + len(raw)) * 8 // 6]
        if len(middle) >= _MIN_BASE64_CHARS:
            found |= {middle, middle.replace("+", "-").replace("/", "_")}
    return found


class TrackBase:
    """One track of an opened cassette."""

    def __init__(self, name: str, redactor: Redactor, workspace: Workspace) -> None:
        self.name = name
        self._redactor = redactor
        self._workspace = workspace
        self._ids = 0
        self.agent = ""
        """Name of the agent file that was used first."""

    def set_agent(self, path: Path) -> None:
        if not self.agent:
            # Those that it asks are built after it, and may have other folders.
            self.agent = path.name
            self._workspace.set_folder(path.parent)

    def make_id(self, prefix: str) -> str:
        self._ids += 1
        digest = hashlib.sha256(f"{self.name}/{self._ids}".encode()).hexdigest()
        return f"{prefix}_{digest[:_ID_DIGITS]}"
