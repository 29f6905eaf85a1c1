"""`holodeck docs` shows the pages that belong to the installed version."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from holodeck_command import run_holodeck
from pty_terminal import TypingTerminal

from holodeck.cli.output.config_problems import TOPICS_OF_ERRORS, TOPICS_OF_FILES

DOCS = Path(__file__).parents[2] / "docs"


def test_without_a_topic_every_page_is_listed_with_its_title(tmp_path: Path) -> None:
    listed = run_holodeck("docs", cwd=tmp_path).stdout.splitlines()
    assert [line.split() for line in listed if line.startswith("glossary ")] == [["glossary", "Glossary"]]
    topics = run_holodeck("docs", "--list", cwd=tmp_path).stdout.split()
    assert len(topics) == len(set(topics)) == len(list(DOCS.rglob("*.md")))


@pytest.mark.parametrize("topic", ["reference/exit-codes", "exit-codes", "reference/exit-codes.md"])
def test_a_page_is_found_by_its_path_or_its_last_part_and_piped_as_markdown(tmp_path: Path, topic: str) -> None:
    shown = run_holodeck("docs", topic, cwd=tmp_path).stdout
    assert shown.startswith("# Exit codes\n")
    assert shown.endswith((DOCS / "reference" / "exit-codes.md").read_text()[-500:])


def test_the_index_of_a_section_is_shown_without_what_only_the_site_needs(tmp_path: Path) -> None:
    shown = run_holodeck("docs", "explain", cwd=tmp_path).stdout
    assert shown.startswith("# Explanations\n")
    assert "toctree" not in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["agentfile"], "There is no page 'agentfile'. Did you mean 'reference/agent-file'?"),
        (["quasar"], "There is no page 'quasar'. 'holodeck docs' lists the pages."),
        (["cli", "--list"], "TOPIC, --list and --search exclude each other."),
    ],
)
def test_a_wrong_topic_is_a_usage_error_with_the_closest_page(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = run_holodeck("docs", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr


def test_search_lists_the_pages_with_all_words_in_any_case(tmp_path: Path) -> None:
    found = run_holodeck("docs", "--search", "MAX_turns ANSWER", cwd=tmp_path).stdout
    assert "reference/agent-file " in found
    assert "reference/exit-codes" not in found
    missed = run_holodeck("docs", "--search", "quasar", cwd=tmp_path)
    assert (missed.returncode, missed.stdout) == (1, "")
    assert "No page has 'quasar'" in missed.stderr


@async_test
async def test_on_a_terminal_a_long_page_is_rendered_and_paged(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED; cat\n")
    pager.chmod(0o755)
    async with TypingTerminal("docs", "agent-file", cwd=tmp_path, env={"PAGER": str(pager)}) as terminal:
        await terminal.wait_for("PAGED")
        await terminal.wait_for("Agent file")
        await terminal.wait_for("gateway file (reference/gateway-file)")
        assert await terminal.wait_exit() == 0
        assert "# Agent file" not in terminal.text


@async_test
async def test_on_a_terminal_a_short_page_is_shown_without_a_pager(tmp_path: Path) -> None:
    async with TypingTerminal("docs", "explain", cwd=tmp_path, env={"PAGER": "false"}) as terminal:
        await terminal.wait_for("Glossary (glossary)")
        assert await terminal.wait_exit() == 0


@pytest.mark.parametrize("topic", sorted({*TOPICS_OF_FILES.values(), *TOPICS_OF_ERRORS.values()}))
def test_the_page_that_an_error_names_exists(tmp_path: Path, topic: str) -> None:
    assert run_holodeck("docs", topic, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("file", "text", "page"),
    [
        ("agent.yaml", "name: small\nmax_turns: 0\n", "reference/agent-file"),
        ("served.yaml", "models: [{name: m}]\nlog: {level: loud}\n", "reference/gateway-file"),
        ("config.yaml", "mcp_servers: {}\n", "reference/config-file"),
    ],
)
def test_an_error_in_a_file_names_the_page_about_it(tmp_path: Path, file: str, text: str, page: str) -> None:
    (tmp_path / "agent.yaml").write_text("name: small\n")
    (tmp_path / file).write_text(text)
    done = run_holodeck("validate", "agent.yaml" if file == "config.yaml" else file, cwd=tmp_path)
    assert done.returncode == 2
    assert f"More: holodeck docs {page}\n" in done.stderr


def test_an_error_at_run_time_names_the_page_about_it(tmp_path: Path) -> None:
    done = run_holodeck("mcp", "call", "--url", "http://127.0.0.1:1/mcp", "add", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("\nMore: holodeck docs guides/server-does-not-start\n")
