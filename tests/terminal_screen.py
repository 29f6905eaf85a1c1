"""What a person sees on a terminal in the end: a small emulator of the escapes that our commands write."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([0-?]*)[ -/]*([@-~])|\x1b\][^\x07]*\x07|\x1b[@-Z\\-_=>]|[\s\S]")


class TerminalScreen:
    """All lines that were written, the scrolled ones too, as they look in the end."""

    def __init__(self, written: str, *, columns: int = 100) -> None:
        self._columns = columns
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0
        for token in _TOKEN.finditer(written):
            self._take(token)

    @property
    def lines(self) -> list[str]:
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _take(self, token: re.Match[str]) -> None:
        char = token[0]
        if token[2]:
            self._control(token[2], int(token[1]) if token[1].isdigit() else 0)
        elif char == "\n":
            self._go_down(1)
        elif char == "\r":
            self._column = 0
        elif char == "\b":
            self._column = max(self._column - 1, 0)
        elif char.isprintable():
            self._put(char)

    def _control(self, name: str, number: int) -> None:
        match name:
            case "A":
                self._row = max(self._row - max(number, 1), 0)
            case "B":
                self._go_down(max(number, 1))
            case "C":
                self._column += max(number, 1)
            case "D":
                self._column = max(self._column - max(number, 1), 0)
            case "G":
                self._column = max(number, 1) - 1
            case "K":
                line = self._lines[self._row]
                if number == 2:
                    line.clear()
                else:
                    del line[self._column :]
            case "J":
                del self._lines[self._row][self._column :]
                del self._lines[self._row + 1 :]
            case _:
                pass

    def _go_down(self, rows: int) -> None:
        self._row += rows
        while len(self._lines) <= self._row:
            self._lines.append([])

    def _put(self, char: str) -> None:
        if self._column >= self._columns:
            self._column = 0
            self._go_down(1)
        line = self._lines[self._row]
        line.extend(" " * (self._column + 1 - len(line)))
        line[self._column] = char
        self._column += 1
