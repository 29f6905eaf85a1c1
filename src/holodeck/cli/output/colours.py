"""The rule for coloured output: `NO_COLOR` and `TERM=dumb` forbid it."""

from __future__ import annotations

import os


def can_use_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
