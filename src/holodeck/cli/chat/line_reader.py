"""Input lines of a person: from an editor with history and completion on a terminal, otherwise from a pipe."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.cli.output.stdin import read_available
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import replace_surrogates
from holodeck.lib.limits import MAX_QUESTION_BYTES, MIB
from holodeck.lib.record import record
from holodeck.lib.system.files import create_private_file, make_private_folder

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
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


@record
class Suggestion:
    """A text in place of the last characters of the line."""

    text: str
    replaced: int
    """Number of characters before the cursor that it replaces."""
    about: str = ""


class LineSuggestions(Protocol):
    """Suggests how a line can go on after its first word."""

    def is_offered_while_typing(self, text: str) -> bool:
        """Return whether suggestions for the text before the cursor are shown without Tab."""
        ...

    async def complete(self, text: str) -> Sequence[Suggestion]:
        """Return what the text before the cursor can become. May take a moment; typing goes on meanwhile."""
        ...


class EditorReader:
    """Line editor with completion of the first word and a history that is stored in a file.

    `names` are completed after `mark`, with which commands begin. `history`: the name of the file. `suggestions`: what
    follows the first word, in a menu. `status`: what happens meanwhile, at the right end of the line while it is typed.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        *,
        prompt: str = "you> ",
        mark: str = "/",
        history: str = "chat_history",
        suggestions: LineSuggestions | None = None,
        status: Callable[[], str] | None = None,
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.shortcuts import CompleteStyle

        self._prompt = prompt
        complete_name = partial(_complete_name, names, mark)
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(history),
            completer=_build_completer(complete_name, suggestions),
            complete_while_typing=Condition(
                lambda: suggestions is not None and suggestions.is_offered_while_typing(self._text_before_cursor)
            ),
            complete_style=CompleteStyle.READLINE_LIKE if suggestions is None else CompleteStyle.COLUMN,
            key_bindings=_build_key_bindings() if suggestions is None else _build_completion_keys(complete_name),
            enable_open_in_editor=False,
            # A line that was entered stays on the screen without it.
            rprompt=None if status is None else lambda: "" if get_app().is_done else status(),
        )
        self._questions: PromptSession[str] = PromptSession(key_bindings=_build_key_bindings())

    @property
    def _text_before_cursor(self) -> str:
        return self._session.default_buffer.document.text_before_cursor

    def redraw(self) -> None:
        """Show the status as it is now, if a line is being typed."""
        if self._session.app.is_running:
            self._session.app.invalidate()

    def interrupt(self) -> bool:
        """Do what Ctrl-C does to the line that is typed. Returns False if none is."""
        app = self._session.app
        if not app.is_running or app.is_done:
            return False
        _interrupt_line(app)
        return True

    async def read_line(self) -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        # Notices about servers are printed above the line that is being edited.
        with patch_stdout(raw=True):
            # Bytes that are no UTF-8 arrive as surrogates.
            return replace_surrogates(await self._session.prompt_async(self._prompt, handle_sigint=False))

    async def ask(self, prompt: str) -> str | None:
        try:
            return replace_surrogates(await self._questions.prompt_async(prompt, handle_sigint=False))
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
        make_private_folder(path.parent)
        create_private_file(path)
        path.chmod(0o600)
        return FileHistory(path)
    return InMemoryHistory()


def _build_key_bindings() -> KeyBindings:
    """Bind Ctrl-C to clear the line, or to leave if it is empty, and Alt-Enter to a line break."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        _interrupt_line(event.app)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _interrupt_line(app: Application[Any]) -> None:
    if app.current_buffer.text:
        app.current_buffer.reset()
    else:
        app.exit(exception=KeyboardInterrupt())


def _build_completion_keys(complete_name: Callable[[str], Sequence[Suggestion]]) -> KeyBindings:
    """Add Tab, which completes, and Enter, which takes the one of several that is selected and sends nothing yet."""
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition, completion_is_selected
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.key_binding.bindings.completion import display_completions_like_readline, generate_completions

    keys = _build_key_bindings()

    @Condition
    def has_choice() -> bool:
        state = get_app().current_buffer.complete_state
        return state is not None and len(state.completions) > 1

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        # Names are known here: the line is complete before the next key. Other suggestions come later, into a menu.
        if complete_name(event.current_buffer.document.text_before_cursor):
            display_completions_like_readline(event)
        else:
            generate_completions(event)

    @keys.add("enter", filter=completion_is_selected & has_choice)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return keys


def _complete_name(names: Callable[[], Iterable[str]], mark: str, text: str) -> Sequence[Suggestion]:
    """Return the names that begin with the text; none if it is no beginning of a first word."""
    if not text.startswith(mark) or " " in text:
        return ()
    typed = text.removeprefix(mark)
    return [Suggestion(text=name, replaced=len(typed)) for name in names() if name.startswith(typed)]


def _build_completer(
    complete_name: Callable[[str], Sequence[Suggestion]], suggestions: LineSuggestions | None
) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    def to_completion(suggestion: Suggestion) -> Completion:
        return Completion(suggestion.text, start_position=-suggestion.replaced, display_meta=suggestion.about)

    class LineCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            return map(to_completion, complete_name(document.text_before_cursor))

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            found = await suggestions.complete(document.text_before_cursor) if suggestions is not None else ()
            for suggestion in found or complete_name(document.text_before_cursor):
                yield to_completion(suggestion)

    return LineCompleter()
