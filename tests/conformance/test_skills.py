"""Skills of a server: nothing is read ahead of need, and a file that is not what was promised is not used."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from conformance.skills import Skill, Skills, read_frontmatter

from holodeck.lib.errors import MCPProtocolError

SKILL = "skill://pdf/SKILL.md"
FORMS = "skill://pdf/FORMS.md"
TEXT = "---\nname: pdf\ndescription: Fill forms\nsince: 2026-01-02\n---\n\nDo this.\n"


def promised(uri: str, content: bytes) -> dict[str, Any]:
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


class Server:
    """Answers as a server of skills does, and records the requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {SKILL: TEXT.encode(), FORMS: b"\x00\x01"}
        self.entry: dict[str, Any] = {
            "uri": SKILL,
            "frontmatter": {"name": "pdf", "description": "Fill forms", "since": "2026-01-02"},
            "resources": [promised(uri, content) for uri, content in self.files.items()],
        }
        self.received: list[str] = []

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.received.append(f"{method} {params.get('uri', params.get('cursor', ''))}".strip())
        if method == "skills/list":
            last = params.get("cursor") == "2"
            return {"skills": [self.entry, "junk", {"uri": 1}] if last else [], "nextCursor": "2"}
        uri = params["uri"]
        blob = base64.b64encode(self.files[uri]).decode()
        block = {"text": self.files[uri].decode()} if uri == SKILL else {"blob": blob}
        return {"contents": [{"uri": uri, **block}]}


async def listed(server: Server) -> tuple[Skills, Skill]:
    skills = Skills("docs", server.ask)
    [skill] = await skills.list()
    return skills, skill


def test_listing_reads_no_file_and_follows_pages_until_a_cursor_repeats() -> None:
    server = Server()
    _, skill = asyncio.run(listed(server))
    assert (skill.name, skill.description) == ("pdf", "Fill forms")
    assert server.received == ["skills/list", "skills/list 2"]


def test_a_skill_and_its_files_are_read_when_they_are_what_was_promised() -> None:
    async def main() -> None:
        skills, skill = await listed(Server())
        assert await skills.load(skill) == TEXT
        assert await skills.read(skill, FORMS) == b"\x00\x01"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (TEXT.replace("this", "evil"), "digest"),
        (TEXT + "more", "bytes"),
        (TEXT.replace("Fill forms", "Read mails"), "digest"),
    ],
)
def test_a_tampered_skill_is_refused(content: str, why: str) -> None:
    async def main() -> None:
        server = Server()
        skills, skill = await listed(server)
        server.files[SKILL] = content.encode()
        with pytest.raises(MCPProtocolError, match=f"'docs'.*{why}"):
            await skills.load(skill)

    asyncio.run(main())


@pytest.mark.parametrize("resources", [[promised(SKILL, TEXT.encode())], "dynamic"])
def test_frontmatter_that_differs_from_the_list_is_refused(resources: Any) -> None:
    async def main() -> None:
        server = Server()
        server.entry["resources"] = resources
        server.entry["frontmatter"]["description"] = "Something harmless"
        skills, skill = await listed(server)
        with pytest.raises(MCPProtocolError, match="frontmatter"):
            await skills.load(skill)

    asyncio.run(main())


def test_a_file_that_the_list_does_not_name_is_never_requested() -> None:
    async def main() -> None:
        server = Server()
        skills, skill = await listed(server)
        with pytest.raises(MCPProtocolError, match="not a file of the skill"):
            await skills.read(skill, "file:///etc/passwd")
        assert not any(line.startswith("resources/read") for line in server.received)

    asyncio.run(main())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no fence",
        "---\nname: x",
        "---\n- a\n---\n",
        "---\na: &a [x]\nb: *a\n---\n",
        "---\n!!python/object:x {}\n---\n",
    ],
)
def test_frontmatter_that_cannot_be_trusted_is_none(text: str) -> None:
    assert read_frontmatter(text) is None
