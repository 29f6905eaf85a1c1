"""Records `terminal.svg`: real commands in a real terminal. `python docs/pictures/terminal.py` writes it again."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_suffix(".svg")
COLUMNS = 100
COMMANDS = (
    'holodeck run examples/assistant "What time is it in Europe/Berlin?"',
    "holodeck mcp list -f examples/assistant/agent.yaml",
)
# Web fonts of the SVG template. The picture loads nothing: a reader's own fixed-width font is used.
_WEB_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
# The text of a line that is written over: only what follows the last of these is seen.
_LINE_CLEARED = "\r\x1b[K"


def record(command: str) -> str:
    """Run a command on a terminal of its own and return its final screen, with colours."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # The live view moves the cursor up, which lines of text cannot show. An answer without Markdown looks the same.
    plain = ["--plain"] if command.startswith("holodeck run ") else []
    with subprocess.Popen(
        [*shlex.split(command), *plain], stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, env=environ
    ) as process:
        os.close(terminal)
        written = b""
        # Linux ends the read with an error when the last process has closed the terminal.
        try:
            while chunk := os.read(screen, 65536):
                written += chunk
        except OSError:
            pass
    os.close(screen)
    if process.returncode:
        sys.exit(f"`{command}` ended with {process.returncode}:\n{written.decode()}")
    lines = written.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition(_LINE_CLEARED)[2] for line in lines)


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in COMMANDS:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(record(command)))
    PICTURE.write_text(_WEB_FONTS.sub("", console.export_svg(title="HoloDeck")), encoding="utf-8")


if __name__ == "__main__":
    main()
