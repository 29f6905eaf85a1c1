"""What the tests of storage share: each kind of storage, empty."""

from __future__ import annotations

import pytest
from storage.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of a new storage: each test that takes it runs once for every kind of storage."""
    if request.param == "sqlite":
        return "sqlite:///kept.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()
