"""Which engine keeps the background runs of a gateway: that of the extra `durable`, in the gateway's own storage."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from holodeck.durable.engine import WorkEngine
from holodeck.gateway.background import executor_name
from holodeck.lib.errors import ConfigError
from holodeck.models.gateway import GatewayFile
from holodeck.storage.factory import sqlite_path


def work_engine(config: GatewayFile, folder: Path, *, keeper: int) -> WorkEngine | None:
    """None: background runs end with this process. Raises `ConfigError` when the file asks for what is not there."""
    wanted, url = config.background.durable, config.storage.url
    has_extra = find_spec("dbos") is not None
    is_memory = url == "sqlite://:memory:"
    if wanted is False or (wanted is None and (not has_extra or is_memory)):
        return None
    if not has_extra:
        raise ConfigError("'background.durable' needs an extra: pip install 'holodeck[durable]'.")
    if is_memory:
        raise ConfigError("'background.durable' needs storage that outlives the process: not sqlite://:memory:.")
    from holodeck.durable.dbos_engine import DBOSEngine

    if url.startswith("sqlite"):
        path = sqlite_path(url, folder)
        url = f"sqlite:///{path.with_name(path.name + '.work').absolute()}"
    return DBOSEngine(url, executor=executor_name(keeper), at_once=config.background.at_once)
