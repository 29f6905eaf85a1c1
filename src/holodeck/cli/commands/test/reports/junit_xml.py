"""A report as JUnit XML, which CI systems show: a `testsuite` for each file and model, a `testcase` for each run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from holodeck.cli.commands.test.verdict_lines import describe_check

if TYPE_CHECKING:
    from holodeck.evaluation.suite_report import SuiteReport, SuiteResult
    from holodeck.evaluation.verdict import Verdict

# Characters that XML 1.0 cannot hold, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit_xml(report: SuiteReport) -> str:
    """Return the document. A run that was planned and did not end is a skipped test."""
    root = ET.Element("testsuites", name="holodeck test", time=_format_seconds(report.seconds))
    started_at = report.started_at.isoformat(timespec="seconds")
    for suite in report.suites:
        root.append(_build_suite(suite, report.repeat, started_at))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(each.get(name, "0")) for each in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _build_suite(result: SuiteResult, repeat: int, started_at: str) -> ET.Element:
    suite = result.suite
    rate = result.figures.pass_rate
    planned = len(result.cases) * repeat
    element = ET.Element(
        "testsuite",
        name=_clean(f"{suite.file} [{suite.model}]"),
        tests=str(planned),
        failures=str(rate.failed),
        errors="0",
        skipped=str(planned - rate.total),
        time=_format_seconds(sum(verdict.result.seconds for verdict in result.verdicts)),
        timestamp=started_at,
    )
    properties = ET.SubElement(element, "properties")
    for name, value in (("agent", suite.loaded.agent.name), ("file", suite.file), ("model", suite.model)):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    for case in result.cases:
        for index in range(repeat):
            name = f"{case.name} ({index + 1} of {repeat})" if repeat > 1 else case.name
            verdict = case.verdicts[index] if index < len(case.verdicts) else None
            element.append(_build_case(name, f"{suite.file}.{suite.model}", verdict))
    return element


def _build_case(name: str, group: str, verdict: Verdict | None) -> ET.Element:
    seconds = 0.0 if verdict is None else verdict.result.seconds
    element = ET.Element("testcase", name=_clean(name), classname=_clean(group), time=_format_seconds(seconds))
    if verdict is None:
        ET.SubElement(element, "skipped", message="the command was stopped before")
        return element
    if not verdict.passed:
        reasons = [describe_check(check) for check in verdict.checks if not check.passed]
        failure = ET.SubElement(element, "failure", message=_clean(reasons[0]), type="check")
        failure.text = _clean("\n".join(reasons))
    lines = [*(f"called {call}" for call in verdict.calls), "answer:", verdict.result.text or "(none)"]
    ET.SubElement(element, "system-out").text = _clean("\n".join(lines))
    return element


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _clean(text: str) -> str:
    """Replace the characters that XML cannot hold by their codes."""
    return _FORBIDDEN.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)
