"""Agent skills of a server: listed without reading any file, and a file is used only if it is what was promised."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from holodeck.lib.errors import MCPProtocolError
from holodeck.lib.limits import KIB

MAX_SKILL_PAGES = 100
MAX_FRONTMATTER_BYTES = 64 * KIB
"""A name, a description and a few settings."""
PHASE = "skills"
_FENCE = "---"

SendRequest = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends one request to the server and gives its result."""


@dataclass(frozen=True, kw_only=True)
class SkillFile:
    """What the list promises of one file."""

    uri: str
    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Skill:
    """An entry of the list. Nothing of it has been read yet."""

    uri: str
    """The address of its SKILL.md."""
    frontmatter: Mapping[str, Any]
    files: Mapping[str, SkillFile] | None = field(default=None, repr=False)
    """By address. None: the server makes the files on demand and promises nothing of them."""

    @property
    def name(self) -> str:
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        return str(self.frontmatter.get("description", ""))


class Skills:
    """The skills of one server."""

    def __init__(self, server: str, send_request: SendRequest) -> None:
        self._server = server
        self._send_request = send_request

    async def list(self) -> list[Skill]:
        """All entries of all pages; one that makes no sense is left out."""
        found: list[Skill] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_SKILL_PAGES):
            page = await self._send_request("skills/list", {"cursor": cursor} if cursor else {})
            entries = page.get("skills")
            found.extend(filter(None, map(_skill, entries if isinstance(entries, list) else [])))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.add(cursor)
        return found

    async def load(self, skill: Skill) -> str:
        """The text of SKILL.md, when size, digest and frontmatter are those of the entry."""
        content = await self.read(skill, skill.uri)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            raise self._skill_error(skill.uri, "it is not UTF-8 text") from None
        if read_frontmatter(text) != dict(skill.frontmatter):
            raise self._skill_error(skill.uri, "its frontmatter is not the one in the list")
        return text

    async def read(self, skill: Skill, uri: str) -> bytes:
        """One file of a skill, when it is what the entry promises."""
        promised = skill.files.get(uri) if skill.files is not None else None
        if skill.files is not None and promised is None:
            raise self._skill_error(uri, f"it is not a file of the skill '{skill.name}'")
        content = _content(await self._send_request("resources/read", {"uri": uri}), uri)
        if content is None:
            raise self._skill_error(uri, "the server sent no content for it")
        if promised is not None and len(content) != promised.size:
            raise self._skill_error(uri, f"it has {len(content)} bytes, not the {promised.size} of the list")
        if promised is not None and not hmac.compare_digest(_digest(content), promised.digest):
            raise self._skill_error(uri, "its content does not match the digest of the list")
        return content

    def _skill_error(self, uri: str, why: str) -> MCPProtocolError:
        message = f"Server '{self._server}' ({PHASE}): {uri} is not used: {why}."
        return MCPProtocolError(message, server=self._server, phase=PHASE, details={"uri": uri})


def read_frontmatter(text: str) -> dict[str, Any] | None:
    """The YAML between the first two `---` lines, or None when there is none that can be trusted."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    block = "\n".join(lines[1:end]) if end is not None else ""
    if not block or len(block) > MAX_FRONTMATTER_BYTES:
        return None
    try:
        value = yaml.load(block, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _PlainLoader(yaml.SafeLoader):
    """Values as JSON has them: no aliases, which can grow without end, and no dates, which the list has as text."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _skill(entry: Any) -> Skill | None:
    uri = entry.get("uri") if isinstance(entry, dict) else None
    frontmatter = entry.get("frontmatter") if isinstance(entry, dict) else None
    if not isinstance(uri, str) or not isinstance(frontmatter, dict) or not isinstance(frontmatter.get("name"), str):
        return None
    resources = entry.get("resources")
    if resources == "dynamic":
        return Skill(uri=uri, frontmatter=frontmatter)
    if not isinstance(resources, list):
        return None
    files = [file for file in map(_file, resources) if file is not None]
    if len(files) != len(resources) or uri not in {file.uri for file in files}:
        return None
    return Skill(uri=uri, frontmatter=frontmatter, files={file.uri: file for file in files})


def _file(value: Any) -> SkillFile | None:
    if not isinstance(value, dict):
        return None
    uri, digest, size = value.get("uri"), value.get("digest"), value.get("size")
    if not isinstance(uri, str) or not isinstance(digest, str) or not isinstance(size, int):
        return None
    return SkillFile(uri=uri, digest=digest, size=size)


def _content(result: Mapping[str, Any], uri: str) -> bytes | None:
    contents = result.get("contents")
    for block in contents if isinstance(contents, list) else []:
        if not isinstance(block, dict) or block.get("uri", uri) != uri:
            continue
        if isinstance(block.get("text"), str):
            return str(block["text"]).encode("utf-8", "surrogatepass")
        if isinstance(block.get("blob"), str):
            try:
                return base64.b64decode(block["blob"], validate=True)
            except binascii.Error:
                return None
    return None


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
