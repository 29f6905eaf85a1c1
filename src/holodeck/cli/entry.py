"""Entry point of the `holodeck` command.

It handles Ctrl-C before anything else is imported, and tunes the garbage collector. Imports create about 60,000
long-lived objects, and Python would search them for unreachable cycles every few hundred allocations and again at exit:
about a fifth of the CPU time of a short command. So collections are rare from the start, and `gc.freeze` avoids the one
at exit, when the process returns all its memory anyway.
"""

from __future__ import annotations

import gc

from holodeck.cli.ctrl_c import exit_on_interrupt, install_interrupt_handler

# Allocations between two collections: a request makes hundreds of objects, and few of them are cycles.
GC_NEW_OBJECTS = 100_000


def main() -> None:
    """Import the command line interface and run it."""
    install_interrupt_handler()
    gc.set_threshold(GC_NEW_OBJECTS)
    try:
        with exit_on_interrupt():
            from holodeck.cli.main import main as run
        run()
    finally:
        gc.freeze()
