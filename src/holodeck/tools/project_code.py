"""Imports the Python files of a project, as they were when its agent file was read.

`register_code` gives the hash of every file that may be imported from a folder. From then on a finder of this module
serves that folder and the packages in it. It runs a file only if its content has the registered hash, and never uses
compiled files: a `__pycache__` can contain other code than the source beside it. Folders that cannot be packages, such
as an environment inside the project, are left to Python's own finders.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from holodeck.lib.errors import ExecutionError

# Raised by code of the project, these fail the call or the import only. SystemExit is among them because scripts
# call `sys.exit`.
PROJECT_ERRORS = (Exception, SystemExit)

_folders: set[str] = set()
_hashes: dict[str, str] = {}


def register_code(folder: Path, hashes: Mapping[Path, str]) -> None:
    """Allow the import of these files from `folder`, and of no others. A later call replaces the hashes of a file."""
    if _find_finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_finder)
    root = str(folder.absolute())
    _folders.add(root)
    _hashes.update({str(path.absolute()): digest for path, digest in hashes.items()})
    for cached in [path for path in sys.path_importer_cache if path == root or path.startswith(root + os.sep)]:
        del sys.path_importer_cache[cached]


def import_file(path: Path) -> ModuleType:
    """Import a file, or return its module if that was done before. Raises `ExecutionError`.

    The file is verified if its folder was registered.
    """
    path = path.absolute()
    name = f"holodeck_project_{path.stem}_{abs(hash(path.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _VerifiedSource(name, str(path)) if str(path.parent) in _folders else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ExecutionError(f"{path.name} cannot be imported: it is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    # The files of a project may import each other.
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PROJECT_ERRORS as error:
        del sys.modules[name]
        raise ExecutionError(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _find_finder(path: str) -> FileFinder:
    """Return the finder of a registered folder, or of a package in one, as a hook of `sys.path_hooks`."""
    for folder in _folders:
        is_inside = Path(path).is_relative_to(folder)
        if is_inside and all(part.isidentifier() for part in Path(path).relative_to(folder).parts):
            return FileFinder(path, (_VerifiedExtension, EXTENSION_SUFFIXES), (_VerifiedSource, [".py"]))
    raise ImportError(f"{path} has no registered code")


def _require_hash(path: str, data: bytes) -> None:
    expected = _hashes.get(path)
    if expected is None:
        raise ImportError(f"{Path(path).name} was not there when the agent file was read")
    if sha256(data).hexdigest() != expected:
        raise ImportError(f"{Path(path).name} has changed since the agent file was read; run the command again")


class _VerifiedSource(SourceFileLoader):
    """Compiles the bytes that it has verified. Compiled files are neither read nor written."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        data = self.get_data(path)
        _require_hash(path, data)
        return self.source_to_code(data, path)


class _VerifiedExtension(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        _require_hash(str(self.path), Path(str(self.path)).read_bytes())
        return super().create_module(spec)
