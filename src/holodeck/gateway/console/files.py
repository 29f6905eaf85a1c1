"""`/` and `/console/{file}`: the console, served from the files that `make console` builds into `static/`.

Every URL in these files is relative, so the console also works below the path of a proxy. The page itself is validated
again at each visit; the other files have a hash of their content in their names and are cached for good. The files
hold nothing of this gateway, so they need no key; what the page shows comes from the API, with the key of its reader.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from holodeck.gateway.api.route import route
from holodeck.gateway.http.errors import not_found_error
from holodeck.gateway.http.replies import HTML, Reply
from holodeck.gateway.http.request import Request

STATIC = Path(__file__).parent / "static"

_CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*-[A-Z0-9]{8}\.[a-z]+", re.ASCII)
# Encodings that the build writes beside each file, the smallest first.
_ENCODINGS = {"br": ".br", "gzip": ".gz"}
_YEAR = 365 * 24 * 3_600
# A page of scripts and styles of its own only; `data:` and `blob:` are pictures and sounds that a person or a tool has
# sent. The sanitiser of the console is the one policy that may turn text into HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_route = partial(
    route,
    "GET",
    tag="Operation",
    reply={"type": "string"},
    empty_replies={304: "As the `If-None-Match` header has it."},
    is_public=True,
)

_NOT_BUILT = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>HoloDeck</title>
<h1>The console is not built</h1>
<p>Node.js 20.19 or newer builds it, which was not there when HoloDeck was installed. Install Node.js. Then, in a
checkout that the gateway runs from, run <code>make console</code> and load this page again. If HoloDeck is installed
from a folder, install it again: <code>pip install --force-reinstall --no-deps FOLDER</code>, and load this page again.
</p>
<p>Everything else is served: see <a href="openapi.json">openapi.json</a>.</p>
</html>
"""


class ConsoleFiles:
    """Routes of the console's files. Each request reads its file, so a new build needs no restart."""

    @_route(
        "/",
        id="getConsole",
        summary="Get the console",
        description="The page for the browser. It speaks this API only, with the key that its reader enters.",
        media_type="text/html",
    )
    async def get_page(self, request: Request) -> Reply:
        """Return the page, or a plain one that says how to build it."""
        reply = await asyncio.to_thread(_read_reply, "index.html", request.headers, "no-cache")
        headers = {**SECURITY_HEADERS, "cache-control": "no-cache"}
        return reply or Reply(body=_NOT_BUILT, content_type=HTML, headers=headers)

    @_route(
        "/console/{file}",
        id="getConsoleFile",
        summary="Get a file of the console",
        description="A script, style or picture that the page names.",
        media_type="text/javascript",
        other_media_types=("text/css", "image/svg+xml"),
        errors=("lookup",),
    )
    async def get_file(self, request: Request) -> Reply:
        """Return a script, style or picture of the page."""
        name = request.path_params["file"]
        reply = None
        if _FILE_NAME.fullmatch(name):
            caching = f"public, max-age={_YEAR}, immutable"
            reply = await asyncio.to_thread(_read_reply, name, request.headers, caching)
        if reply is None:
            raise not_found_error("File", name)
        return reply


def _read_reply(name: str, headers: Mapping[str, str], caching: str) -> Reply | None:
    """Return the reply with a file in the smallest form that the client accepts; None where there is no such file."""
    accepted = _read_accepted(headers.get("accept-encoding", ""))
    for encoding, suffix in (*_ENCODINGS.items(), ("", "")):
        path = STATIC / f"{name}{suffix}"
        if (encoding and encoding not in accepted) or not path.is_file():
            continue
        body = path.read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        sent = {**SECURITY_HEADERS, "cache-control": caching, "etag": etag, "vary": "accept-encoding"}
        if etag in headers.get("if-none-match", ""):
            return Reply(status=304, content_type=_CONTENT_TYPES[Path(name).suffix], headers=sent)
        if encoding:
            sent["content-encoding"] = encoding
        return Reply(body=body, content_type=_CONTENT_TYPES[Path(name).suffix], headers=sent)
    return None


def _read_accepted(header: str) -> set[str]:
    """Return the encodings of an `Accept-Encoding` header, without those of weight 0."""
    accepted = set()
    for entry in header.lower().split(","):
        name, _, weight = entry.partition(";")
        if not re.fullmatch(r"\s*q=0(\.0*)?\s*", weight):
            accepted.add(name.strip())
    return accepted
