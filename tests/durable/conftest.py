"""One PostgreSQL server for the gateways of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from storage.postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server
