"""Every fault of the misbehaving server is tested, and nearly every one ends in an error that names its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from holodeck.testing import Fault


@pytest.mark.proves("000:SC-003")
def test_every_fault_is_used_in_a_test_through_the_plugin() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_faults_*.py"))
    assert [fault.value for fault in Fault if f'"{fault.value}"' not in tests] == []
