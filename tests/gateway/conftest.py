"""What the tests of the gateway share."""

from __future__ import annotations

from typing import Any

import pytest
from storage.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of `run_gateway`, for each kind of storage."""
    if request.param == "sqlite":
        return {"storage": {"url": "sqlite:///kept.db"}}
    server: PostgresServer = request.getfixturevalue("postgres")
    return {"storage": {"url": "${DATABASE_URL}"}, "environ": {"DATABASE_URL": server.new_database()}}
