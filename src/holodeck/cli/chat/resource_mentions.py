"""Mentions of resources in a message of a chat: `@server:uri`, or `@server:"uri with spaces"`.

A mention names a server with `load_resources: true`; any other text with an `@` stays text. The content of each
mentioned resource is attached to the message, within `MAX_ATTACHED_CHARS`. A message with a resource that cannot be
read is not sent, so that the user can correct it.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.cli.output.terminal import Screen
from holodeck.lib.errors import ExecutionError, MCPError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.net.uri_template import match_template
from holodeck.lib.record import record
from holodeck.models.content import BinaryContent, ContentBlock, ImageContent, TextContent, describe_block
from holodeck.models.items import Message, text_message

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.tools.mcp.plugin import MCPPlugin

# Characters of one attached resource: about 25,000 tokens, a part of the context of most models.
MAX_ATTACHED_CHARS = 100_000
# Resources of one message.
MAX_MENTIONS = 20

_MENTION = re.compile(r"""(?:^|(?<=[\s(\["']))@([A-Za-z][A-Za-z0-9_-]{0,63}):(?:"([^"\n]+)"|([^\s"]+))""")
# Characters after a URI that belong to the sentence, unless the server has a resource whose URI ends with them.
_PUNCTUATION = ".,;:!?)]}'"
# First bytes of the images that models accept. The type that a server declares may be wrong, and models refuse then.
_IMAGE_SIGNATURES = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@record
class _Attachment:
    """A resource as a part of a message, and the line that tells the user about it."""

    blocks: tuple[ContentBlock, ...]
    summary: str


def attachable_servers(agent: AgentRunner) -> dict[str, MCPPlugin]:
    """Return the servers whose resources a user can mention, by name."""
    return {name: server for name, server in agent.mcp.servers.items() if server.config.load_resources}


async def build_message(agent: AgentRunner, line: str, screen: Screen) -> Message:
    """Return the message of a line, with the resources that it mentions, and say what was attached.

    Raises `ExecutionError` or `MCPError` if one of them cannot be read.
    """
    servers = attachable_servers(agent)
    mentions = [found for found in _MENTION.finditer(line) if found[1] in servers]
    if not mentions:
        return text_message("user", line)
    if len(mentions) > MAX_MENTIONS:
        raise ExecutionError(f"A message can have {MAX_MENTIONS} resources, and this one mentions {len(mentions)}.")
    named = dict.fromkeys([(found[1], found[2] or found[3], bool(found[2])) for found in mentions])
    attached = await asyncio.gather(
        *(_attach(servers[server], uri, is_quoted=is_quoted) for server, uri, is_quoted in named)
    )
    for attachment in attached:
        screen.note(attachment.summary, always=True, dim=True)
    blocks = [block for attachment in attached for block in attachment.blocks]
    return Message(role="user", content=(TextContent(text=line), *blocks))


async def _attach(server: MCPPlugin, written: str, *, is_quoted: bool) -> _Attachment:
    uri = written if is_quoted else await _choose_uri(server, written)
    result = await server.read_resource(uri)
    if result.error is not None:
        raise result.error
    shown = one_line(uri, MAX_SHOWN_CHARS)
    # With line breaks of its own: some models get all texts of a message as one.
    title = TextContent(text=f"\n\nResource {uri} of server {server.name}:\n")
    blocks: list[ContentBlock] = []
    sizes: list[str] = []
    for block in result.content:
        if isinstance(block, TextContent):
            text = block.text[:MAX_ATTACHED_CHARS]
            is_cut = len(text) < len(block.text)
            mark = f"\n[cut: {len(block.text)} characters in all]" if is_cut else ""
            blocks.append(TextContent(text=f"{text}{mark}\n"))
            first = f"the first {len(text)} of " if is_cut else ""
            sizes.append(f"{first}{len(block.text)} characters")
        elif isinstance(block, BinaryContent) and (kind := _find_image_type(block.data)) is not None:
            blocks.append(ImageContent(data=b64encode(block.data).decode(), mime_type=kind))
            sizes.append(f"{kind}, {len(block.data)} bytes")
        else:
            # The model is told about it: the other contents of the resource may refer to it.
            blocks.append(TextContent(text=f"{describe_block(block)}\n"))
    if not sizes:
        about = "; ".join(one_line(describe_block(block), MAX_SHOWN_CHARS) for block in result.content) or "it is empty"
        raise ExecutionError(f"{shown} of {server.name} cannot be attached: {about}.")
    return _Attachment(blocks=(title, *blocks), summary=f"Attached {shown} of {server.name}: {', '.join(sizes)}.")


async def _choose_uri(server: MCPPlugin, written: str) -> str:
    """Return the URI without the punctuation of the sentence, where the server has a resource of that URI only."""
    bare = written.rstrip(_PUNCTUATION)
    if bare == written:
        return written
    try:
        listed = {info.uri for info in await server.list_resources()}
        templates = [info.uri_template for info in await server.list_resource_templates()]
    except MCPError:
        # The reading says what is wrong.
        return written
    if written in listed:
        return written
    return bare if bare in listed or _is_made_by(templates, bare) else written


def _is_made_by(templates: Sequence[str], uri: str) -> bool:
    return any(match_template(template, uri) is not None for template in templates)


def _find_image_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGE_SIGNATURES.items() if data.startswith(start)), None)
