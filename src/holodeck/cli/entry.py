"""The way into the `holodeck` command: Ctrl-C is heard before anything else is loaded.

Imports make some 60,000 objects that stay, and Python would look through them for unreachable cycles every few
hundred objects and again at exit: about a fifth of the CPU of a short command. So collections are rare from the start,
and none is made at exit, when the process gives all its memory back anyway.
"""

from __future__ import annotations

import gc

from holodeck.cli.ctrl_c import exit_on_interrupt, install_interrupt_handler

GC_NEW_OBJECTS = (
    100_000  # before cycles among them are looked for: a request makes hundreds, and few of them are cycles
)


def main() -> None:
    """Load the command, and run it."""
    install_interrupt_handler()
    gc.set_threshold(GC_NEW_OBJECTS)
    try:
        with exit_on_interrupt():
            from holodeck.cli.main import main as run
        run()
    finally:
        gc.freeze()
