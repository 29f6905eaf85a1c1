"""Whether the person at the terminal wants colours: `NO_COLOR` and `TERM=dumb` say no."""

from __future__ import annotations

import os


def can_use_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
