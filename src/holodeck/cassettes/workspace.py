"""Makes a cassette independent of the folder that it was recorded in: the folder is written as `${workspaceFolder}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NAME = "${workspaceFolder}"
_LITERAL = "$${workspaceFolder}"
_EXPANDED = re.compile(r"\$?\$\{workspaceFolder\}")
# Characters of a folder that is replaced: a shorter one, such as `/`, is in every text.
_MIN_FOLDER_CHARS = 4


class Workspace:
    """Replaces one folder in texts, and puts it back. Until `folder` is set, texts stay as they are."""

    def __init__(self) -> None:
        self._forms: tuple[str, ...] = ()
        self._folder = _NAME

    def set_folder(self, folder: Path) -> None:
        """Use this folder. Only the first one counts: a cassette has one."""
        if self._folder == _NAME:
            self._folder = str(folder.absolute())
            forms = {self._folder, str(folder.resolve())}
            forms |= {Path(form).as_uri().removeprefix("file://") for form in forms}
            long_enough = (form for form in forms if len(form) >= _MIN_FOLDER_CHARS)
            self._forms = tuple(sorted(long_enough, key=len, reverse=True))

    def to_portable(self, value: Any) -> Any:
        """Return plain data without the folder."""
        return map_texts(value, self._replace_folder)

    def to_local(self, value: Any) -> Any:
        """Return plain data of a cassette with the folder of this run."""
        return map_texts(value, self._insert_folder)

    def _replace_folder(self, text: str) -> str:
        text = text.replace(_NAME, _LITERAL)
        for form in self._forms:
            # Not the beginning of the name of another folder.
            text = re.sub(re.escape(form) + r"(?![\w.-])", lambda _: _NAME, text)
        return text

    def _insert_folder(self, text: str) -> str:
        return _EXPANDED.sub(lambda found: _NAME if found[0] == _LITERAL else self._folder, text)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with each text changed, the names of members included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    return value
