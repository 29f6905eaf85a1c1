"""A real PostgreSQL server for as long as it is needed: the one of the tests."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.postgres_server import PostgresServer

_TESTS = Path(__file__).parents[1] / "tests"


def running_postgres() -> AbstractContextManager[PostgresServer]:
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    from storage import postgres_server

    return postgres_server.running_postgres()
