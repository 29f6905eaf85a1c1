"""The playground in a real browser: answers as they are streamed, tool calls, approvals, branches, files."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from async_tests import async_test
from console.browser import open_page
from console.playground_page import PlaygroundPage
from gateway.config_entries import server as server_entry
from gateway.running_gateway import run_gateway
from playwright.async_api import expect

from holodeck.lib.errors import ModelError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend, think, wait
from holodeck.testing.mcp.tools import PNG

SECONDS = 90


@async_test(SECONDS)
async def test_an_answer_is_streamed_as_markdown(tmp_path: Path, browser_url: str) -> None:
    go_on = asyncio.Event()
    answered = [say("# Plan\n\nFirst **this**"), wait(go_on), say(", then\n\n- that\n- `code`\n"), spend(1_200, 34)]
    model = ScriptedModel(answered)
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        await playground.send("How?")
        await expect(page.locator("strong", has_text="this")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        go_on.set()
        answer = await playground.wait_done(1)
        await expect(answer.get_by_role("heading", name="Plan")).to_be_visible()
        await expect(answer.get_by_role("listitem")).to_have_text(["that", "code"])
        await expect(answer).to_contain_text("1,200 tokens in, 34 out")


@async_test(SECONDS)
async def test_reasoning_and_tool_calls_are_shown_with_server_arguments_and_result(
    tmp_path: Path, browser_url: str
) -> None:
    model = ScriptedModel([think("I must add."), call("add", a=2, b=40)], say("It is 42."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        exchange = await PlaygroundPage(page).ask("2 + 40?")
        shown = await PlaygroundPage(page).open_call(exchange, "add")
        await expect(shown).to_contain_text("sums")
        await expect(shown.locator("pre").first).to_have_text('{\n  "a": 2,\n  "b": 40\n}')
        await expect(shown.locator("pre").last).to_have_text("42")
        await exchange.locator("details.reasoning summary").click()
        await expect(exchange.locator("details.reasoning")).to_contain_text("I must add.")


@async_test(SECONDS)
async def test_an_edit_is_approved_by_a_click_after_its_difference_was_shown(tmp_path: Path, browser_url: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    note = folder / "note.md"
    note.write_text("one\ntwo\nthree\n")
    edits = [{"oldText": "two\nthree", "newText": "2\nthree"}]
    model = ScriptedModel(call("edit_file", path=str(note), edits=edits), say("Edited."))
    files = {
        "name": "files",
        "type": "mcp",
        "description": "Files",
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", str(folder)],
        "approval": {"always": ["edit_file"]},
    }
    async with (
        run_gateway(tmp_path, model, mcp_servers=[files], allow_stdio=True) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        playground = PlaygroundPage(page)
        exchange = await playground.ask("Edit it")
        lines = exchange.locator(".difference-line")
        await expect(lines).to_have_text(["-removed: two", "+added: 2", "three"], use_inner_text=False)
        await expect(exchange).to_contain_text(f"path: {note}")
        assert note.read_text() == "one\ntwo\nthree\n"
        await exchange.get_by_role("button", name="Approve").click()
        await expect(await playground.wait_done(2)).to_contain_text("Edited.")
        await expect(exchange).to_contain_text("Approved")
        assert note.read_text() == "one\n2\nthree\n"


@async_test(SECONDS)
async def test_a_denied_call_does_not_run(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."))
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "type": "mcp", "description": "Sums", "transport": "http", "url": server.url}
        config: dict[str, Any] = {"mcp_servers": [{**entry, "approval": "always"}]}
        async with run_gateway(tmp_path, model, **config) as gateway, open_page(browser_url, gateway.url) as page:
            playground = PlaygroundPage(page)
            exchange = await playground.ask("1 + 2?")
            await exchange.get_by_role("button", name="Deny").click()
            await expect(await playground.wait_done(2)).to_contain_text("Then not.")
            await expect(exchange).to_contain_text("Denied")
        assert not server.calls("add")


@async_test(SECONDS)
async def test_a_run_is_stopped_by_a_click(tmp_path: Path, browser_url: str) -> None:
    never = asyncio.Event()
    model = ScriptedModel([say("It begins"), wait(never)])
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        await playground.send("Go")
        await expect(page.get_by_text("It begins")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        exchange = await playground.wait_done(1)
        await expect(exchange).to_contain_text("Stopped.")


@async_test(SECONDS)
async def test_a_failure_is_told_in_the_words_of_the_gateway_and_can_be_tried_again(
    tmp_path: Path, browser_url: str
) -> None:
    model = ScriptedModel(fail(ModelError("no such thing", status=400)), say("Now it works."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        exchange = await playground.ask("Hello?")
        await expect(exchange.get_by_role("alert")).to_be_visible()
        await exchange.get_by_role("button", name="Retry").click()
        await expect(await playground.wait_done(1)).to_contain_text("Now it works.")


@async_test(SECONDS)
async def test_an_edited_question_is_a_branch_and_both_branches_stay(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("Hi Ann."), say("Ann, of course."), say("Hi Ben."), say("Ben, of course."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        first = await playground.ask("I am Ann")
        await playground.ask("Who am I?")
        await first.get_by_role("button", name="Edit").click()
        await page.get_by_role("textbox", name="Edit the message").fill("I am Ben")
        await page.get_by_role("button", name="Send as a branch").click()
        await expect(await playground.wait_done(1)).to_contain_text("Hi Ben.")
        await playground.ask("Who am I?")
        texts = [message["content"] for message in gateway.model_requests[-1]["messages"]]
        assert texts == ["I am Ben", "Hi Ben.", "Who am I?"]
        await page.get_by_role("button", name="Previous branch").click()
        await expect(playground.exchanges.last).to_contain_text("Ann, of course.")
        await page.reload()
        await expect(playground.exchanges.last).to_contain_text("Ben, of course.")
        await page.get_by_role("button", name="Previous branch").click()
        await expect(playground.exchanges.last).to_contain_text("Ann, of course.")


@async_test(SECONDS)
async def test_a_conversation_goes_on_after_the_responses_of_another_branch_are_deleted(
    tmp_path: Path, browser_url: str
) -> None:
    model = ScriptedModel(say("Hi Ann."), say("Hi Ben."), say("Ben, of course."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        first = await playground.ask("I am Ann")
        await first.get_by_role("button", name="Edit").click()
        await page.get_by_role("textbox", name="Edit the message").fill("I am Ben")
        await page.get_by_role("button", name="Send as a branch").click()
        await expect(await playground.wait_done(1)).to_contain_text("Hi Ben.")
        _, runs = await gateway.send("GET", "/v1/runs")
        [ann] = [run["id"] for run in runs["data"] if run["question"] == "I am Ann"]
        await gateway.send("DELETE", f"/v1/responses/{ann}")
        await page.reload()
        await expect(playground.exchanges.last).to_contain_text("Hi Ben.")
        await expect(await playground.ask("Who am I?")).to_contain_text("Ben, of course.")
        [ben] = [run["id"] for run in runs["data"] if run["question"] == "I am Ben"]
        await gateway.send("DELETE", f"/v1/responses/{ben}")
        await page.reload()
        await expect(playground.exchanges.last).to_contain_text("Ben, of course.")
        await expect(playground.exchanges).to_have_count(1)


@async_test(SECONDS)
async def test_a_picture_and_a_file_reach_the_model(tmp_path: Path, browser_url: str) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(PNG))
    (tmp_path / "notes.txt").write_text("The launch is on Friday.")
    model = ScriptedModel(say("A dot, and a launch."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        await page.get_by_label("Files to attach").set_input_files([tmp_path / "dot.png", tmp_path / "notes.txt"])
        await expect(page.get_by_role("list", name="Attached").get_by_role("listitem")).to_have_count(2)
        exchange = await PlaygroundPage(page).ask("What are these?")
        await expect(exchange.get_by_role("img", name="Attached")).to_be_visible()
        sent = str(gateway.model_requests[-1]["messages"][-1]["content"])
    assert f"data:image/png;base64,{PNG}" in sent
    assert "The launch is on Friday." in sent or base64.b64encode(b"The launch is on Friday.").decode() in sent


@async_test(SECONDS)
async def test_an_exchange_can_be_sent_again_by_curl_and_python_and_is_a_test_case(
    tmp_path: Path, browser_url: str
) -> None:
    model = ScriptedModel([call("echo", text="it's")], say("It's."), *[say("Again.")] * 2)
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"echoes": server}) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        exchange = await PlaygroundPage(page).ask("Say it's")
        await exchange.get_by_role("button", name="Code and events").click()
        codes = {}
        for name in ("curl", "Python", "YAML test case"):
            await page.get_by_role("tab", name=name).click()
            codes[name] = await page.get_by_role("tabpanel").locator("pre").inner_text()
        curl = await asyncio.to_thread(subprocess.run, ["bash", "-c", codes["curl"]], capture_output=True, text=True)
        assert "Again." in curl.stdout, curl.stderr
        command = [sys.executable, "-c", codes["Python"]]
        python = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        assert python.stdout == "Again.\n", python.stderr
        assert gateway.model_requests[-1]["messages"] == gateway.model_requests[-2]["messages"]
    (case,) = yaml.safe_load(codes["YAML test case"])["test_cases"]
    assert case["input"] == "Say it's"
    assert case["expected_tools"] == [{"name": "echoes.echo", "arguments": {"text": "it's"}}]


@async_test(SECONDS)
async def test_the_raw_events_of_a_response_are_listed_beside_it(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("abc " * 1_500), chunk=1)
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        exchange = await PlaygroundPage(page).ask("Much, please")
        await exchange.get_by_role("button", name="Code and events").click()
        events = page.get_by_role("listbox", name="Events")
        await events.press("Home")
        await expect(page.get_by_role("tabpanel").locator("pre")).to_contain_text("response.created")
        await events.press("End")
        await expect(page.get_by_role("tabpanel").locator("pre")).to_contain_text("response.completed")
        rows = events.get_by_role("option")
        assert int(await rows.first.get_attribute("aria-setsize") or 0) > 5_000
        assert await rows.count() < 100


@async_test(SECONDS)
async def test_a_message_after_one_that_failed_goes_on_with_the_conversation(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("Hi Ann."), say("Ann, of course."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        await playground.ask("I am Ann")
        await page.route("**/v1/responses", lambda route: route.abort(), times=1)
        await playground.ask("Are you there?")
        await expect(playground.exchanges.last.get_by_role("alert")).to_have_text("The gateway does not answer.")
        await playground.send("Who am I?")
        await expect(playground.exchanges.last).to_contain_text("Ann, of course.")
        await expect(playground.exchanges).to_have_count(2)
        texts = [message["content"] for message in gateway.model_requests[-1]["messages"]]
        assert texts == ["I am Ann", "Hi Ann.", "Who am I?"]


@async_test(SECONDS)
async def test_retry_and_edit_send_the_instructions_of_their_exchange(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("One."), say("Two."), say("Three."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        await page.get_by_text("Instructions", exact=True).click()
        await page.get_by_role("textbox", name="Instructions for the model").fill("Count.")
        await playground.ask("Go")
        await page.wait_for_url("**/conv_*")
        await page.reload()
        await expect(playground.exchanges.last).to_contain_text("One.")
        await page.get_by_role("button", name="Retry").click()
        await expect(playground.exchanges.last).to_contain_text("Two.")
        await page.get_by_role("button", name="Edit").click()
        edited = page.get_by_role("textbox", name="Edit the message")
        await expect(edited).to_be_focused()
        await edited.fill("  ")
        await expect(page.get_by_role("button", name="Send as a branch")).to_be_disabled()
        await edited.fill("Go on")
        await page.get_by_role("button", name="Send as a branch").click()
        await expect(playground.exchanges.last).to_contain_text("Three.")
        first = [request["messages"][0] for request in gateway.model_requests]
        assert first == [{"role": first[0]["role"], "content": "Count."}] * 3


@async_test(SECONDS)
async def test_an_approval_and_its_answer_are_no_broken_test_cases(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel([call("add", a=1, b=2)], say("It is 3."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp_servers=[server_entry("sums", server.url, approval="always")]) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        playground = PlaygroundPage(page)
        waiting = await playground.ask("1 + 2?")
        await page.get_by_role("button", name="Approve").click()
        answered = await playground.wait_done(2)
        await expect(answered).to_contain_text("It is 3.")
        await expect(page.get_by_role("log")).to_be_focused()
        await expect(answered.get_by_role("button", name="Retry")).to_have_count(0)
        code = page.get_by_role("tabpanel").locator("pre")
        opener = waiting.get_by_role("button", name="Code and events")
        await opener.click()
        await page.get_by_role("tab", name="YAML test case").click()
        (case,) = yaml.safe_load(await code.inner_text())["test_cases"]
        assert case == {"name": "1 + 2?", "input": "1 + 2?", "expected_tools": []}
        await page.get_by_role("button", name="Close").click()
        await expect(opener).to_be_focused()
        await answered.get_by_role("button", name="Code and events").click()
        for tab in ("curl", "Python", "YAML test case"):
            await page.get_by_role("tab", name=tab).click()
            await expect(code).to_contain_text("This answers an approval, which can be done once.")


@async_test(SECONDS)
async def test_a_run_that_cannot_be_stopped_says_so(tmp_path: Path, browser_url: str) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([say("Half"), wait(go_on), say(" done.")])
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        await playground.send("Go")
        await expect(playground.exchanges.last).to_contain_text("Half")
        await page.route("**/cancel", lambda route: route.abort(), times=1)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("alert")).to_have_text("It could not be stopped: The gateway does not answer.")
        await page.get_by_role("button", name="Stop").click()
        await expect(await playground.wait_done(1)).to_contain_text("Stopped.")


@async_test(SECONDS)
async def test_another_browser_has_the_conversations_of_the_key_and_goes_on_with_one(
    tmp_path: Path, browser_url: str
) -> None:
    model = ScriptedModel(say("Hi Ann."), say("Hi Ben."), say("Ben, of course."))
    async with run_gateway(tmp_path, model) as gateway:
        # Of a program, which the playground could not show.
        await gateway.send("POST", "/v1/conversations", {"metadata": {"topic": "sums"}})
        async with open_page(browser_url, gateway.url) as page:
            first = await PlaygroundPage(page).ask("I am Ann")
            await first.get_by_role("button", name="Edit").click()
            await page.get_by_role("textbox", name="Edit the message").fill("I am Ben")
            await page.get_by_role("button", name="Send as a branch").click()
            await expect(await PlaygroundPage(page).wait_done(1)).to_contain_text("Hi Ben.")
            assert "I am" not in str(await page.context.storage_state())
        async with open_page(browser_url, gateway.url) as page:
            playground = PlaygroundPage(page)
            listed = page.get_by_role("navigation", name="Conversations").get_by_role("listitem")
            await expect(listed).to_contain_text(["I am Ann"])
            await listed.get_by_role("link").click()
            await expect(playground.exchanges.last).to_contain_text("Hi Ben.")
            await expect(page.get_by_role("button", name="Previous branch")).to_be_enabled()
            await expect(await playground.ask("Who am I?")).to_contain_text("Ben, of course.")


@async_test(SECONDS)
async def test_a_conversation_is_found_again_and_can_be_deleted(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("Hi."), say("Bye."))
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        playground = PlaygroundPage(page)
        await playground.ask("Hello there")
        await page.get_by_role("link", name="New conversation").click()
        await expect(playground.exchanges).to_have_count(0)
        await page.get_by_role("link", name="Hello there").click()
        await expect(playground.exchanges.last).to_contain_text("Hi.")
        await playground.ask("And bye")
        assert len(gateway.model_requests[-1]["messages"]) == 3
        await page.get_by_role("button", name="Delete Hello there").click()
        await expect(page.get_by_role("link", name="Hello there")).to_have_count(0)
        await expect(playground.exchanges).to_have_count(0)
