"""Where the lines of a chat come from: an editor with a history on a terminal, standard input otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holodeck.cli.output.stdin import read_available
from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import MAX_QUESTION_BYTES, MIB

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

_PROMPT = "you> "
_CHUNK = 65_536  # bytes: what a pipe holds


class LineReader(Protocol):
    """Gives one line after the other. Raises `EOFError` at the end, `KeyboardInterrupt` for Ctrl-C at an empty line."""

    async def read_line(self) -> str: ...

    async def ask(self, prompt: str) -> str | None:
        """An answer to a question; None when there is none."""
        ...


class EditorReader:
    """Lines that a person edits, with a history that outlives the chat and completion of commands."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.shortcuts import CompleteStyle

        self._session: PromptSession[str] = PromptSession(
            history=_open_history(),
            completer=_build_completer(names),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=_build_key_bindings(),
            enable_open_in_editor=False,
        )
        self._questions: PromptSession[str] = PromptSession(key_bindings=_build_key_bindings())

    async def read_line(self) -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        with patch_stdout(raw=True):  # what a server does meanwhile is told above the line
            return await self._session.prompt_async(_PROMPT, handle_sigint=False)

    async def ask(self, prompt: str) -> str | None:
        try:
            return await self._questions.prompt_async(prompt, handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None


class PipeReader:
    """Lines from standard input, read beside whatever else goes on."""

    def __init__(self) -> None:
        self._buffer = b""
        self._has_more = True

    async def read_line(self) -> str:
        while b"\n" not in self._buffer and self._has_more and len(self._buffer) <= MAX_QUESTION_BYTES:
            more = await read_available(_CHUNK)
            self._has_more = bool(more)
            self._buffer += more
        line, end, rest = self._buffer.partition(b"\n")
        if len(line) > MAX_QUESTION_BYTES:
            raise ExecutionError(f"A line of standard input has more than {MAX_QUESTION_BYTES // MIB} MiB.")
        self._buffer = rest
        if not line and not end:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r")

    async def ask(self, prompt: str) -> str | None:
        return None  # the next line is a question of its own


def _open_history() -> History:
    """A file that only its owner can read, where programs keep such things; nothing when it cannot be had."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "holodeck" / "chat_history"
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
        return FileHistory(path)
    return InMemoryHistory()


def _build_key_bindings() -> KeyBindings:
    """Ctrl-C clears the line, and leaves when there is nothing to clear; Alt-Enter begins another line."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _build_completer(names: Callable[[], Iterable[str]]) -> _Commands:
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            if text.startswith("/") and " " not in text:
                for name in names():
                    if name.startswith(text[1:]):
                        yield Completion(name, start_position=1 - len(text))

    return Commands()


if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer as _Commands
