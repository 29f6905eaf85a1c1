"""A real PostgreSQL server for as long as it is needed, and a network to it that loses bytes: those of the tests."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.postgres_server import PostgresServer
    from storage.silenceable_network import SilenceableNetwork

_TESTS = Path(__file__).parents[1] / "tests"


def running_postgres() -> AbstractContextManager[PostgresServer]:
    _find_tests()
    from storage import postgres_server

    return postgres_server.running_postgres()


def lossy_network(port: int) -> AbstractAsyncContextManager[tuple[SilenceableNetwork, int]]:
    """A network to this port, and the port of its near end."""
    _find_tests()
    from storage import silenceable_network

    return silenceable_network.run_network(port)


def _find_tests() -> None:
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
