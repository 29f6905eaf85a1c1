"""The runner finds a block that does not do what its page says, and reports page and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.page_runner import PageError, explain_difference, run_page

AGENT = "```yaml\n# agent.yaml\nname: demo\nmodel: {provider: rehearsal}\n```\n"
SERVED = """
```bash
holodeck serve agent.yaml &
curl -s http://127.0.0.1:8080/healthz
```

```text
...Serving ... at http://127.0.0.1:8080/v1...
{"status":"ok"}
```
"""


def _run(text: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(text)
    work = folder / "work"
    work.mkdir()
    run_page(page, work)


def _mistake(text: str, folder: Path) -> str:
    with pytest.raises(PageError) as caught:
        _run(text, folder)
    return str(caught.value)


def test_a_reader_can_follow_from_block_to_block(tmp_path: Path) -> None:
    steps = "```bash\nmkdir deep; cd deep; NAME=world\n```\n```bash\necho hello $NAME; basename $(pwd)\n```\n"
    _run(f"{steps}\n```text\nhello w...d\ndeep\n```\n", tmp_path)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# Hi\n\n```ruby\nputs 1\n```\n", ("page.md:3", "'ruby'", "neither run nor checked")),
        ("```bash\necho 1\n```\n\n```text\n2\n```\n", ("page.md:5", "-2", "+1")),
        ("```console\n$ echo 1\n2\n```\n", ("page.md:1", "-2", "+1")),
        ("```bash\nfalse\n```\n", ("page.md:1", "ended with 1")),
        ("```console\n$ false\n```\n", ("page.md:1", "ended with 1")),
        ("```python\nraise SystemExit('no')\n```\n", ("page.md:1", "no")),
        ("```yaml\n# agent.yaml\nname: demo\nmodell: {}\n```\n", ("page.md:1", "modell")),
        ("```yaml\ntools: [{type: mcp, nam: files}]\n```\n", ("page.md:1", "nam")),
        ("**list.json**\n```json\n{,}\n```\n", ("page.md:2", "no json")),
        ("<!-- not run: needs a key -->\n```yaml\n# agent.yaml\nname: 1\ntools: 3\n```\n", ("page.md:2", "tools")),
        ("```bash\nholodeck serve missing.yaml &\n```\n", ("page.md:1", "missing.yaml")),
    ],
)
def test_a_mistake_is_found_with_its_page_and_line(page: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    mistake = _mistake(page, tmp_path)
    assert [text for text in expected if text not in mistake] == [], mistake


def test_a_gateway_in_the_background_answers_at_the_port_of_the_page(tmp_path: Path) -> None:
    _run(AGENT + SERVED, tmp_path)


def test_a_block_with_a_reason_is_not_run(tmp_path: Path) -> None:
    _run("<!-- not run: it fails -->\n```bash\nfalse\n```\n\n```text\nwhat it would say\n```\n", tmp_path)


def test_three_dots_stand_for_anything() -> None:
    assert explain_difference("a ... c\n...\nz", "a b c\n1\n2\nz") == ""
    assert explain_difference("...\nz", "z") == ""
    assert explain_difference("took ... s", "took 951 ms") == ""
    assert "-took" in explain_difference("took ... s", "took ages")
    assert explain_difference("files  up", "files   up") == ""
    assert "-y" in explain_difference("a...\ny", "a b\nz")
