"""Input lines of a person: from an editor with history and completion on a terminal, otherwise from a pipe."""

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

# Bytes per read: the capacity of a pipe.
_CHUNK = 65_536


class LineReader(Protocol):
    """Reads lines. Raises `EOFError` at the end of input, `KeyboardInterrupt` for Ctrl-C at an empty line."""

    async def read_line(self) -> str: ...

    async def ask(self, prompt: str) -> str | None:
        """Ask the user for one line; None if there is no answer."""
        ...


class EditorReader:
    """Line editor with completion of the first word and a history that is stored in a file.

    `names` are completed after `mark`, with which commands begin. `history`: the name of the file.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        *,
        prompt: str = "you> ",
        mark: str = "/",
        history: str = "chat_history",
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.shortcuts import CompleteStyle

        self._prompt = prompt
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(history),
            completer=_build_completer(names, mark),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=_build_key_bindings(),
            enable_open_in_editor=False,
        )
        self._questions: PromptSession[str] = PromptSession(key_bindings=_build_key_bindings())

    async def read_line(self) -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        # Notices about servers are printed above the line that is being edited.
        with patch_stdout(raw=True):
            return await self._session.prompt_async(self._prompt, handle_sigint=False)

    async def ask(self, prompt: str) -> str | None:
        try:
            return await self._questions.prompt_async(prompt, handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None


class PipeReader:
    """Lines from standard input. Raises `ExecutionError` for one over `MAX_QUESTION_BYTES`."""

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
        # The next line of a pipe is a question of its own.
        return None


def _open_history(name: str) -> History:
    """Open the history file of this name in the XDG state folder, with mode 600; in memory if that fails."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "holodeck" / name
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
        return FileHistory(path)
    return InMemoryHistory()


def _build_key_bindings() -> KeyBindings:
    """Bind Ctrl-C to clear the line, or to leave if it is empty, and Alt-Enter to a line break."""
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


def _build_completer(names: Callable[[], Iterable[str]], mark: str) -> _Commands:
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            if text.startswith(mark) and " " not in text:
                for name in names():
                    if name.startswith(text.removeprefix(mark)):
                        yield Completion(name, start_position=len(mark) - len(text))

    return Commands()


if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer as _Commands
