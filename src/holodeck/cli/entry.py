"""The way into the `holodeck` command: Ctrl-C is heard before anything else is loaded."""

from __future__ import annotations

from holodeck.cli.leaving import listen, nothing_begun


def main() -> None:
    """Load the command, and run it."""
    listen()
    with nothing_begun():
        from holodeck.cli.main import main as run
    run()
