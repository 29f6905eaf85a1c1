"""Which engine keeps the background runs of a gateway: that of the extra `durable`, in the gateway's own storage."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from holodeck.durable.drafts import remove_left_drafts
from holodeck.durable.engine import EngineToCome, WorkEngine
from holodeck.gateway.background import executor_name
from holodeck.lib.errors import StorageError
from holodeck.lib.extras import install_hint, is_installed
from holodeck.models.gateway import GatewayFile
from holodeck.models.storage_url import is_in_memory, is_sqlite, sqlite_path
from holodeck.storage.same_file import SameFile


def work_engine(config: GatewayFile, folder: Path, *, keeper: int) -> EngineToCome | None:
    """None: background runs end with this process. A file that asks for what is not there was refused when loaded."""
    wanted, url = config.background.durable, config.storage.url
    if wanted is False or (wanted is None and (not is_installed("durable") or is_in_memory(url))):
        return None
    kept: Path | None = None
    if is_sqlite(url):
        path = sqlite_path(url, folder)
        kept = path.with_name(path.name + ".work").absolute()
        url = f"sqlite:///{kept}"
        remove_left_drafts(kept)

    def make() -> WorkEngine:
        try:
            from holodeck.durable.dbos_engine import DBOSEngine
        except ImportError as error:
            hint = install_hint("durable")
            raise StorageError(f"Durable runs cannot be kept: {error}. Install the extra again: {hint}") from error
        if gc.get_freeze_count():  # whoever has decided that what is loaded stays means this, too
            gc.freeze()
        return DBOSEngine(url, executor=executor_name(keeper), at_once=config.background.at_once)

    # In a file of its own nobody has kept anything before there is that file; a database may be shared.
    return EngineToCome(
        make=make,
        is_lost=_loss_of(kept) if kept is not None else lambda: False,
        is_missed=kept.exists if kept is not None else lambda: True,
    )


def _loss_of(path: Path) -> Callable[[], bool]:
    """Tells whether a file is lost; it is the one that is there when that is first asked."""
    file = SameFile(path)

    def is_lost() -> bool:
        file.opened()
        return file.is_lost()

    return is_lost
