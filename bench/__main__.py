"""`python -m bench [NAME ...] [--OPTION=VALUE ...]`: run the measurements, all of them or those that are named.

Options belong to one measurement that is named: `python -m bench gateway --help`.
"""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "gateway",
    "overload",
    "revisions",
    "stand_ins",
    "turns",
    "startup",
    "footprint",
    "chunks",
    "rehearsal",
    "mcp_calls",
    "mcp_client",
    "mcp_endpoint",
    "durability",
    "runs",
    "storage",
    "keys",
    "console",
)


def main() -> None:
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    names = [word for word in sys.argv[1:] if word not in options]
    if options and len(names) != 1:
        sys.exit(f"Options go with one of: {', '.join(NAMES)}")
    for name in names or NAMES:
        if name not in NAMES:
            sys.exit(f"There is no measurement '{name}'. There are: {', '.join(NAMES)}")
        importlib.import_module(f"bench.{name}").main(*options)
        print()


main()
