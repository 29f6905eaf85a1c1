"""Report files of `holodeck test`: valid for their readers, complete, and harmless whatever models and tools say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test

from holodeck.testing.model.script import call, say, spend

HOSTILE = (
    "<script>alert(1)</script> </pre></details><img src=\"http://evil.example/x\" onerror='alert(2)'> ]]> & &lt; "
    "\x1b[31m \u202e \x00 | **bold** [link](http://evil.example) `code`"
)
CASES = """test_cases:
  - name: adds
    input: What is 1 + 2?
    expected_tools: [calc.add]
    ground_truth: "3"
  - name: "hostile <b>name</b> | pipe"
    input: "Say it <i>now</i>"
    contains: "<never>"
"""
# Elements of the page. All others would come from a text that was not escaped.
KNOWN_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "div", "span", "small", "p", "h1"),
    *("h2", "h4", "table", "thead", "tbody", "tr", "th", "td", "svg", "line", "circle", "rect", "details", "summary"),
    *("ul", "li", "code", "pre"),
}
KNOWN_ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "scope", "data-label", "role", "aria-label"),
    *("aria-hidden", "open", "height", "width", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx"),
}


class PageReader(HTMLParser):
    """Collects the elements, their attributes, and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.style = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.style += data
        else:
            self.text += data


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


async def write_reports(project: AgentProject, *args: str) -> None:
    """Run a good case, and one with hostile texts in every place."""
    turns = [
        [call("add", a=1, b=2), spend(90, 10)],
        [say("The sum is 3."), spend(180, 20)],
        [call("echo", text=HOSTILE), spend(50, 5)],
        [say(HOSTILE), spend(60, 6)],
    ]
    async with serve_scripted(*2 * turns) as model:
        project.write(model, project.npx_server("calc"), more=CASES)
        names = [part for name in ("out.xml", "out.json", "out.md", "out.html") for part in ("--report", name)]
        done = await project.run_holodeck("test", "-q", *names, *args)
        assert done.returncode == 1, done.stderr


@async_test(60)
async def test_junit_xml_has_a_suite_with_times_reasons_and_answers(project: AgentProject) -> None:
    await write_reports(project)
    root = ET.parse(project.path / "out.xml").getroot()
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors"), root.get("skipped")) == ("2", "1", "0", "0")
    (suite,) = root
    assert suite.get("name") == "agent.yaml [openai_compatible:scripted]"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", suite.get("timestamp", ""))
    adds, hostile = suite.findall("testcase")
    assert (adds.get("name"), adds.get("classname")) == ("adds", "agent.yaml.openai_compatible:scripted")
    assert float(adds.get("time", "-1")) > 0
    assert adds.find("failure") is None
    assert adds.findtext("system-out") == "called calc.add(a=1, b=2)\nanswer:\nThe sum is 3."
    failure = hostile.find("failure")
    assert failure is not None
    assert failure.get("message") == failure.text == 'the answer does not have: "<never>"'
    out = hostile.findtext("system-out") or ""
    assert HOSTILE.replace("\x1b", "<U+001B>").replace("\x00", "<U+0000>") in out


@async_test(60)
async def test_repeated_runs_are_test_cases_of_their_own(project: AgentProject) -> None:
    await write_reports(project, "--repeat", "2")
    (suite,) = ET.parse(project.path / "out.xml").getroot()
    names = [case.get("name") for case in suite.findall("testcase")]
    assert names[:2] == ["adds (1 of 2)", "adds (2 of 2)"]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")


@async_test(60)
async def test_json_has_the_transcript_of_each_run(project: AgentProject) -> None:
    await write_reports(project)
    report = json.loads((project.path / "out.json").read_text())
    adds, hostile = report["suites"][0]["cases"]
    items = adds["runs"][0]["transcript"]
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert (items[0]["role"], items[-1]["role"]) == ("user", "assistant")
    assert adds["figures"]["tokens"] == 300
    assert hostile["runs"][0]["answer"] == HOSTILE, "data is not changed"


@async_test(60)
async def test_the_page_has_everything_and_nothing_of_a_hostile_text_is_markup(project: AgentProject) -> None:
    await write_reports(project, "--repeat", "2")
    source = (project.path / "out.html").read_text()
    page = PageReader(source)
    assert page.open == [], "every element is closed"
    assert set(page.tags) <= KNOWN_TAGS
    assert {name for name, _ in page.attributes} <= KNOWN_ATTRIBUTES
    # The texts are there as they are, apart from what would not be seen.
    shown = HOSTILE.replace("\x1b", "<U+001B>").replace("\u202e", "<U+202E>").replace("\x00", "<U+0000>")
    assert page.text.count(shown) >= 2, "as the result of the tool, and as the answer"
    for words in (
        "hostile <b>name</b> | pipe",
        "Say it <i>now</i>",
        "What is 1 + 2?",
        "Call of calc.add",
        "The sum is 3.",
        'the answer does not have: "<never>"',
        "2 passed, 2 failed",
        "300 tokens",
        "openai_compatible:scripted",
    ):
        assert words in page.text, words
    assert page.tags.count("details") == 2 + 4, "each case and each run opens"
    assert [name for name, _ in page.attributes].count("open") == 1, "the case that failed is open"
    assert page.tags.count("svg") == 1 + 3 * 2, "the rate of the model; the rate, tokens and time of each case"


@async_test(60)
async def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else(project: AgentProject) -> None:
    await write_reports(project)
    page = PageReader((project.path / "out.html").read_text())
    policies = [value for name, value in page.attributes if name == "content" and value and "default-src" in value]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policies == [f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"]
    assert "url(" not in page.style
    assert "@import" not in page.style


@async_test(60)
async def test_markdown_of_hostile_texts_has_no_markup_of_theirs(project: AgentProject) -> None:
    await write_reports(project)
    lines = (project.path / "out.md").read_text().splitlines()
    assert "| pass | adds | add | 2 |" in lines[8]
    row = lines[9]
    assert row.startswith("| **FAIL** | hostile \\<b\\>name\\</b\\> \\| pipe | echo | 2 |")
    (answer,) = [line for line in lines if line.startswith("- answered: \\<script")]
    assert re.search(r"(?<!\\)[<>`*\[\]|]", answer) is None
