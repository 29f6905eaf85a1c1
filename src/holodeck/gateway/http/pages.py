"""Pages of HTML for a person in a browser, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape

from holodeck.gateway.http.replies import HTML, Reply

_STYLE = (
    "body{font:16px system-ui;margin:15vh auto;max-width:30em;padding:0 1em;text-align:center;overflow-wrap:anywhere}"
    "button{font:inherit;margin:1em .5em;padding:.4em 1.5em}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def build_page(title: str, text: str, *, status: int = 200) -> Reply:
    """Build a page of one heading and one paragraph. Both are plain text."""
    return _build_reply(title, f"<p>{escape(text)}</p>", "'none'", "no-referrer", status)


def build_question_page(
    title: str,
    paragraphs: Sequence[str],
    *,
    choices: Mapping[str, str],
    fields: Mapping[str, str] | None = None,
    leads_to: str = "",
) -> Reply:
    """Build a page that asks a person, and sends the answer to its own address.

    All is plain text. `choices`: the labels of the buttons, by the value of `decision`. `fields`: sent with the answer.
    `leads_to`: the origin or the scheme to which the answer is redirected, which a browser checks, too.
    """
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in (fields or {}).items()
    )
    buttons = "".join(
        f'<button name="decision" value="{escape(value)}">{escape(label)}</button>' for value, label in choices.items()
    )
    texts = "".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    # A form has an `Origin` only with this policy, and the request is accepted only with one.
    return _build_reply(
        title, f'{texts}<form method="post">{hidden}{buttons}</form>', f"'self' {leads_to}".strip(), "same-origin", 200
    )


def build_departure_page(title: str, text: str, url: str) -> Reply:
    """Build a page that leads on to a URL elsewhere. Some browsers block a redirect of a form."""
    where = escape(url)
    link = f'<meta http-equiv="refresh" content="0; url={where}"><p><a href="{where}">Go on</a></p>'
    return _build_reply(title, f"<p>{escape(text)}</p>{link}", "'none'", "no-referrer", 200)


def _build_reply(title: str, content: str, form_action: str, referrer_policy: str, status: int) -> Reply:
    body = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>HoloDeck</title>'
        f"<style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>{content}</main></body></html>"
    )
    headers = {
        "cache-control": "no-store",
        "content-security-policy": (
            f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action {form_action}; "
            "frame-ancestors 'none'"
        ),
        "referrer-policy": referrer_policy,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
    return Reply(status=status, body=body.encode(), content_type=HTML, headers=headers)
