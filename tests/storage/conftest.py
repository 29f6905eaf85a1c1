"""One PostgreSQL server for all tests of storage, and an empty database for each that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from storage.postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Where to keep things: each test that takes it runs once for every kind of storage."""
    if request.param == "sqlite":
        return "sqlite:///kept.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()
