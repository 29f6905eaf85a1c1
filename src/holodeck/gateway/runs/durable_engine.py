"""Choice of the engine for durable background runs: DBOS of the extra `durable`, in the gateway's own storage.

With SQLite the engine has a file of its own beside the gateway's; with PostgreSQL it uses the same database.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from holodeck.durable.base import LazyEngine, WorkEngine, executor_name
from holodeck.lib.errors import StorageError
from holodeck.lib.extras import install_hint, is_installed
from holodeck.lib.system.files import ReplacedFileCheck, remove_stale_drafts
from holodeck.models.gateway import GatewayFile
from holodeck.models.storage_url import is_in_memory, is_sqlite, sqlite_path


def build_durable_engine(config: GatewayFile, folder: Path, *, gateway_id: int) -> LazyEngine | None:
    """Return the engine of a gateway, which is created at its first use. None: background runs end with this process.

    A configuration that demands durable runs without the extra was refused when it was loaded.
    """
    is_wanted, url = config.background.durable, config.storage.url
    if is_wanted is False or (is_wanted is None and (not is_installed("durable") or is_in_memory(url))):
        return None
    file: Path | None = None
    if is_sqlite(url):
        path = sqlite_path(url, folder)
        file = path.with_name(path.name + ".work").absolute()
        url = f"sqlite:///{file}"
        remove_stale_drafts(file)

    def create_engine() -> WorkEngine:
        try:
            from holodeck.durable.dbos_engine import DBOSEngine
        except ImportError as error:
            hint = install_hint("durable")
            raise StorageError(f"Durable runs cannot be kept: {error}. Install the extra again: {hint}") from error
        # The modules of the engine stay loaded as well, so a process that froze the earlier ones freezes these.
        if gc.get_freeze_count():
            gc.freeze()
        return DBOSEngine(url, executor=executor_name(gateway_id), max_running=config.background.at_once)

    # Without its own file there is no stored work. A database may have work of other gateways.
    return LazyEngine(
        create=create_engine,
        check_file_replaced=_build_replaced_check(file) if file is not None else lambda: False,
        has_stored_work=file.exists if file is not None else lambda: True,
    )


def _build_replaced_check(path: Path) -> Callable[[], bool]:
    """Return a check whether a file was deleted or replaced since the first call of the check."""
    check = ReplacedFileCheck(path)

    def is_file_replaced() -> bool:
        check.remember_identity()
        return check.check_replaced()

    return is_file_replaced
