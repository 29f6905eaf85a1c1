"""Reads reports of `holodeck test`."""

from __future__ import annotations

from typing import Any


def list_case_runs(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of all cases, each with what its case has."""
    return [{**case, **run} for suite in report["suites"] for case in suite["cases"] for run in case["runs"]]
