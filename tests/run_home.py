"""The home of a run of the tests: a folder of its own, so that none of them reads or writes the person's.

Tests give their processes a HOME of their own; this one is for what a test forgets, and for code that runs in the
process of the tests. It is set before anything is imported that could ask for it. A process that a test starts without
any HOME still finds the person's by the user database: `find_written_files` says so at the end of the run.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_XDG = {"XDG_CONFIG_HOME": ".config", "XDG_CACHE_HOME": ".cache", "XDG_STATE_HOME": ".local/state"}
"""Where the product stores files, and where that is in a home without the variable."""


class PersonsHome:
    """The person's home, as it was before `replace_home`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.path = Path(environ.get("HOME") or Path.home())
        xdg = [Path(environ.get(name) or self.path / folder) / "holodeck" for name, folder in _XDG.items()]
        self._folders = [self.path / ".holodeck", *xdg]
        self._before = dict(self._stored_files())

    def find_written_files(self, folder: Path) -> list[Path]:
        """Return the files of the product in the person's home that were written since and name a path in a folder.

        Without the second condition, a gateway that the person runs meanwhile would fail the tests.
        """
        written = [file for file, stamp in self._stored_files() if self._before.get(file) != stamp]
        return [file for file in written if os.fsencode(folder) in file.read_bytes()]

    def _stored_files(self) -> Iterator[tuple[Path, int]]:
        for folder in self._folders:
            for parent, _, names in os.walk(folder):
                for name in names:
                    file = Path(parent, name)
                    if file.is_file() and not file.is_symlink():
                        yield file, file.stat().st_mtime_ns


def replace_home(environ: dict[str, str] | os._Environ[str]) -> None:
    """Make an empty folder the home, until the process ends. Programs of others find what they have fetched already."""
    home = Path(environ.get("HOME") or Path.home())
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    environ.setdefault("UV_CACHE_DIR", str(cache / "uv"))
    for name, path in (
        ("UV_PYTHON_INSTALL_DIR", data / "uv/python"),
        ("PYENV_ROOT", home / ".pyenv"),
        ("NVM_DIR", home / ".nvm"),
        ("DOCKER_CONFIG", home / ".docker"),
        ("npm_config_userconfig", home / ".npmrc"),
    ):
        if path.exists():
            environ.setdefault(name, str(path))
    # A worker ends without its exit handlers: its home is in that of the run.
    own = tempfile.mkdtemp(prefix="holodeck-tests-home-", dir=home if "PYTEST_XDIST_WORKER" in environ else None)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    environ["HOME"] = own
    for name in [*_XDG, "XDG_DATA_HOME"]:
        environ.pop(name, None)
