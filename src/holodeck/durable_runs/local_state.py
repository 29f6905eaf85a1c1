"""The local folder of durable runs: their database, and the liveness locks of the processes that run them.

The folder has `runs.db`, the database of the durable engine; `alive/`, with one lock file per process; and
`runs.door`, whose lock serializes the creation and migration of the database.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holodeck.durable.base import WorkArchive, WorkEngine, executor_name, executor_number
from holodeck.lib.errors import ConfigError, StorageError
from holodeck.lib.extras import install_hint, is_installed
from holodeck.lib.system.files import make_private_folder, open_private_file, user_state_folder, warn_if_waiting
from holodeck.storage.liveness import FileLiveness

# Questions and answers are private to the user.


class LocalState:
    """The folder of durable runs. It creates nothing before `lock`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "runs.db"

    @property
    def is_empty(self) -> bool:
        """True before the first durable run. Reads the file system."""
        return not self.database.exists() or not self.database.stat().st_size

    def create_liveness(self) -> FileLiveness:
        return FileLiveness(self.folder / "alive")

    def create_engine(self, liveness: FileLiveness) -> WorkEngine:
        """Create the engine of this process.

        Its group is its own, so that no other process picks its runs up: a run belongs to the process that a user
        started for it.
        """
        from holodeck.durable.dbos_engine import DBOSEngine

        executor = executor_name(liveness.number)
        return DBOSEngine(self._url, executor=executor, max_running=1, group=executor)

    def open_archive(self) -> WorkArchive:
        from holodeck.durable.dbos_archive import DBOSArchive

        return DBOSArchive(self._url)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other processes while the database is created or migrated. Waits, with a warning, for another one.

        Raises `StorageError` when the folder or its lock file cannot be created.
        """
        try:
            make_private_folder(self.folder)
            handle = open_private_file(self.folder / "runs.door", os.O_RDWR)
        except OSError as error:
            raise StorageError(f"Durable runs cannot be kept in {self.folder}: {error.strerror}.") from None
        try:
            with warn_if_waiting(self.database):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.database.absolute()}"


def find_local_state(environ: Mapping[str, str]) -> LocalState:
    """Return the state in `user_state_folder`. Raises `ConfigError` if the extra for durable runs is not installed."""
    if not is_installed("durable"):
        raise ConfigError(f"Durable runs need an extra: {install_hint('durable')}.")
    return LocalState(user_state_folder(environ))


def is_executor_alive(executor: str, liveness: FileLiveness) -> bool:
    """Return whether the process of an executor is alive. False for a name that is not one of `executor_name`."""
    number = executor_number(executor)
    return number is not None and liveness.is_alive(number)
