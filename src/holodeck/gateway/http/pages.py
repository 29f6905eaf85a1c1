"""Pages of HTML for a person in a browser, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape

from holodeck.gateway.http.replies import HTML, Reply

_STYLE = "body{font:16px system-ui;margin:15vh auto;max-width:30em;padding:0 1em;text-align:center}"
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def build_page(title: str, text: str, *, status: int = 200) -> Reply:
    """Build a page of one heading and one paragraph. Both are plain text."""
    body = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>HoloDeck</title>'
        f"<style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1><p>{escape(text)}</p></main></body></html>"
    )
    return Reply(status=status, body=body.encode(), content_type=HTML, headers=_build_headers())


def _build_headers() -> Mapping[str, str]:
    return {
        "cache-control": "no-store",
        "content-security-policy": (
            f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
