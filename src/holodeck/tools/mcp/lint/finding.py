"""`Finding`: something in a tool or in the entry of a server that may be prompt injection."""

from __future__ import annotations

from typing import Literal

from holodeck.lib.record import record

Severity = Literal["error", "warning"]


@record
class Finding:
    """A finding of one rule at one place."""

    code: str
    """The rule. Codes do not change."""
    severity: Severity
    """`error`: no honest server needs this. `warning`: honest servers have it, too."""
    server: str
    tool: str | None
    """None: the finding is about the entry of the server."""
    place: str
    """Where it is in the tool or in the entry: `description`, `input_schema.properties.note.description`, `args[2]`."""
    message: str
