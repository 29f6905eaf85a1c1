"""Mentions in a message of a chat: `@server:uri`, `@server:"uri with spaces"`, and files (see `attached_files`).

The content of each mentioned resource or file is attached to the message, within `MAX_ATTACHED_CHARS`. A message with a
mention that cannot be read is not sent, so that the user can correct it; the resources of a server without
`load_resources: true` cannot be read. An `@` before any other word stays what it is.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.cli.attached_files import MAX_ATTACHED_CHARS, Attachment, attach_file, find_files, image_type
from holodeck.cli.output.terminal import Screen
from holodeck.lib.errors import ExecutionError, MCPError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.net.uri_template import match_template
from holodeck.models.items import (
    BinaryContent,
    ContentBlock,
    ImageContent,
    Message,
    TextContent,
    describe_block,
    text_message,
)

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.tools.mcp.plugin import MCPPlugin

# Resources and files of one message.
MAX_MENTIONS = 20

_MENTION = re.compile(r"""(?:^|(?<=[\s(\["']))@([A-Za-z][A-Za-z0-9_-]{0,63}):(?:"([^"\n]+)"|([^\s"]+))""")
# Characters after a URI that belong to the sentence, unless the server has a resource whose URI ends with them.
_PUNCTUATION = ".,;:!?)]}'"


def attachable_servers(agent: AgentRunner) -> dict[str, MCPPlugin]:
    """Return the servers whose resources a user can mention, by name."""
    return {name: server for name, server in agent.mcp.servers.items() if server.config.load_resources}


async def build_message(agent: AgentRunner, line: str, screen: Screen) -> Message:
    """Return the message of a line, with the resources and files that it mentions, and say what was attached.

    Raises `ExecutionError` or `MCPError` if one of them cannot be read.
    """
    servers, known = attachable_servers(agent), agent.mcp.servers
    mentions = [found for found in _MENTION.finditer(line) if found[1] in known]
    for found in mentions:
        if found[1] not in servers:
            raise ExecutionError(
                f"{one_line(found[0], MAX_SHOWN_CHARS)} cannot be attached: write 'load_resources: true' in the entry "
                f"of '{found[1]}', which lets resources of that server be read."
            )
    files = [path for path in dict.fromkeys(find_files(line)) if path.partition(":")[0] not in known]
    if len(mentions) + len(files) > MAX_MENTIONS:
        count = len(mentions) + len(files)
        raise ExecutionError(f"A message can have {MAX_MENTIONS} resources and files, and this one mentions {count}.")
    named = dict.fromkeys([(found[1], found[2] or found[3], bool(found[2])) for found in mentions])
    attached = [
        *[await asyncio.to_thread(attach_file, path) for path in files],
        *await asyncio.gather(
            *(_attach(servers[server], uri, is_quoted=is_quoted) for server, uri, is_quoted in named)
        ),
    ]
    if not attached:
        return text_message("user", line)
    for attachment in attached:
        screen.note(attachment.summary, always=True, dim=True)
    parts = [part for attachment in attached for part in attachment.parts]
    return Message(role="user", content=(TextContent(text=line), *parts))


async def _attach(server: MCPPlugin, written: str, *, is_quoted: bool) -> Attachment:
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
        elif isinstance(block, BinaryContent) and (kind := image_type(block.data)) is not None:
            # By its bytes: the type that a server declares may be wrong, and models refuse then.
            blocks.append(ImageContent(data=b64encode(block.data).decode(), mime_type=kind))
            sizes.append(f"{kind}, {len(block.data)} bytes")
        else:
            # The model is told about it: the other contents of the resource may refer to it.
            blocks.append(TextContent(text=f"{describe_block(block)}\n"))
    if not sizes:
        about = "; ".join(one_line(describe_block(block), MAX_SHOWN_CHARS) for block in result.content) or "it is empty"
        raise ExecutionError(f"{shown} of {server.name} cannot be attached: {about}.")
    return Attachment(parts=(title, *blocks), summary=f"Attached {shown} of {server.name}: {', '.join(sizes)}.")


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
