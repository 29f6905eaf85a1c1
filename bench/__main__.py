"""`python -m bench [NAME ...]`: run the measurements, all of them or those that are named."""

from __future__ import annotations

import importlib
import sys

NAMES = ("gateway", "turns", "startup", "footprint", "chunks", "rehearsal", "mcp_calls")


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            sys.exit(f"There is no measurement '{name}'. There are: {', '.join(NAMES)}")
        importlib.import_module(f"bench.{name}").main()
        print()


main()
