"""Text in HTML."""

from __future__ import annotations

import html

from holodeck.lib.escape import escape_unprintable


def escape(text: str) -> str:
    """Return the text as HTML, for elements and for attributes in double quotes. Invisible characters become codes."""
    return html.escape(escape_unprintable(text), quote=True)
