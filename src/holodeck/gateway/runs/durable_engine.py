"""Which engine keeps the background runs of a gateway: that of the extra `durable`, in the gateway's own storage."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from holodeck.durable.base import LazyEngine, WorkEngine
from holodeck.gateway.runs.background import executor_name
from holodeck.lib.errors import StorageError
from holodeck.lib.extras import install_hint, is_installed
from holodeck.lib.system.files import ReplacedFileCheck, remove_stale_drafts
from holodeck.models.gateway import GatewayFile
from holodeck.models.storage_url import is_in_memory, is_sqlite, sqlite_path


def build_durable_engine(config: GatewayFile, folder: Path, *, gateway_id: int) -> LazyEngine | None:
    """None: background runs end with this process. A file that asks for what is not there was refused when loaded."""
    wanted, url = config.background.durable, config.storage.url
    if wanted is False or (wanted is None and (not is_installed("durable") or is_in_memory(url))):
        return None
    kept: Path | None = None
    if is_sqlite(url):
        path = sqlite_path(url, folder)
        kept = path.with_name(path.name + ".work").absolute()
        url = f"sqlite:///{kept}"
        remove_stale_drafts(kept)

    def create_engine() -> WorkEngine:
        try:
            from holodeck.durable.dbos_engine import DBOSEngine
        except ImportError as error:
            hint = install_hint("durable")
            raise StorageError(f"Durable runs cannot be kept: {error}. Install the extra again: {hint}") from error
        if gc.get_freeze_count():  # whoever has decided that what is loaded stays means this, too
            gc.freeze()
        return DBOSEngine(url, executor=executor_name(gateway_id), max_running=config.background.at_once)

    # In a file of its own nobody has kept anything before there is that file; a database may be shared.
    return LazyEngine(
        create=create_engine,
        check_file_replaced=_build_replaced_check(kept) if kept is not None else lambda: False,
        has_stored_work=kept.exists if kept is not None else lambda: True,
    )


def _build_replaced_check(path: Path) -> Callable[[], bool]:
    """Tells whether a file is lost; it is the one that is there when that is first asked."""
    file = ReplacedFileCheck(path)

    def is_file_replaced() -> bool:
        file.remember_identity()
        return file.check_replaced()

    return is_file_replaced
