"""A run that reached a limit tells clients a reason that they know."""

from __future__ import annotations

from typing import get_args

import pytest

from holodeck.gateway.openapi.schemas.reply_schemas import INCOMPLETE_REASONS
from holodeck.gateway.wire.response.resource import ending_of
from holodeck.models.events import Cause, RunResult


@pytest.mark.parametrize("cause", get_args(Cause))
def test_each_cause_of_an_incomplete_run_has_a_documented_reason(cause: Cause) -> None:
    ending = ending_of(RunResult(status="incomplete", text="", cause=cause), is_pause_completed=False)
    assert ending.incomplete in INCOMPLETE_REASONS
