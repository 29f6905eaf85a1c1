"""How well the rehearsal model does: the right tool, the right arguments, and none that the request does not say."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from bench.table import print_table
from holodeck.models.items import FunctionCall, Message, text_message
from holodeck.models.model_io import ModelAnswer, ModelRequest, ToolSpec
from holodeck.providers.rehearsal.extract import zone_names
from holodeck.providers.rehearsal.model import Rehearsal, find_asked_tool
from holodeck.providers.rehearsal.ranking import shortlist_tools

FIXTURES = Path(__file__).parents[1] / "tests" / "providers" / "fixtures"


def load_tools() -> tuple[ToolSpec, ...]:
    """The tools of all servers in the fixture."""
    servers = json.loads((FIXTURES / "mcp_tools.json").read_text())
    return tuple(
        ToolSpec(name=tool["name"], description=tool["description"], parameters=tool["inputSchema"])
        for offered in servers.values()
        for tool in offered
    )


async def answer_request(request: str, offered: tuple[ToolSpec, ...]) -> ModelAnswer:
    """The last event of one exchange."""
    events = [
        event async for event in Rehearsal().stream(ModelRequest(items=(text_message("user", request),), tools=offered))
    ]
    last = events[-1]
    assert isinstance(last, ModelAnswer)
    return last


def find_invented(value: Any, request: str) -> list[Any]:
    """Leaves of a call that the request does not say, checked without the rules that found them."""
    if isinstance(value, dict):
        return [each for inner in value.values() for each in find_invented(inner, request)]
    if isinstance(value, list):
        return [each for inner in value for each in find_invented(inner, request)]
    if isinstance(value, bool):
        return []  # judged by the expected arguments
    if isinstance(value, int | float):
        numbers = {float(word.strip("?.,!").replace(",", "")) for word in request.split() if _is_number(word)}
        return [] if float(value) in numbers else [value]
    text, plain = str(value).lower(), request.lower()
    names = [name for name, zone in zone_names().items() if zone == value]
    ways = [text, text.removeprefix("https://"), *names, *_spoken_times(text), *_spoken_dates(text)]
    return [] if any(way in plain for way in ways) else [value]


def _spoken_times(text: str) -> list[str]:
    """`15:00` is also `3pm`, and `12:00` is noon."""
    if not re.fullmatch(r"\d\d:\d\d", text):
        return []
    hour = int(text[:2])
    half = "am" if hour < 12 else "pm"
    spoken = str(hour % 12 or 12) + (text[2:] if text[3:] != "00" else "")
    return [f"{spoken}{half}", f"{spoken} {half}", *(["noon"] if text == "12:00" else [])]


def _spoken_dates(text: str) -> list[str]:
    """`2027-03-03` is also March 3, 2027."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return []
    return [f"{day:%B} {day.day}, {day.year}".lower()]


def _is_number(word: str) -> bool:
    try:
        float(word.strip("?.,!").replace(",", ""))
    except ValueError:
        return False
    return True


def measure_requests(title: str, offered: tuple[ToolSpec, ...], cases: list[dict[str, Any]]) -> None:
    """One table: how the model does on these requests with these tools on offer."""
    right = exact = top_three = made_up = with_tool = 0
    times, misses = [], []
    for case in cases:
        started = time.process_time()
        answered = asyncio.run(answer_request(case["say"], offered))
        times.append(1000 * (time.process_time() - started))
        calls = [item for item in answered.items if isinstance(item, FunctionCall)]
        text = "".join(item.text for item in answered.items if isinstance(item, Message))
        tool = calls[0].name if calls else find_asked_tool(text) or "none"
        arguments = json.loads(calls[0].arguments) if calls else None
        is_right = tool == case["tool"]
        is_exact = is_right and (
            arguments == case["with"] if "with" in case else all(f"`{name}`" in text for name in case.get("asks", ()))
        )
        made_up += len(find_invented(arguments or {}, case["say"]))
        right, exact = right + is_right, exact + is_exact
        if case["tool"] != "none":
            with_tool += 1
            top_three += case["tool"] in [each.name for each in shortlist_tools(case["say"], offered, 3)]
        if not is_exact:
            misses.append([case["say"][:60], tool, json.dumps(arguments)[:90]])
    count = len(cases)
    rows = [
        ["right tool, or rightly none", f"{100 * right / count:.0f} %", "at least 90 %"],
        ["and all arguments right, or rightly asked for", f"{100 * exact / count:.0f} %", ""],
        ["arguments that the request does not say", str(made_up), "0"],
        ["right tool in the shortlist of three", f"{100 * top_three / with_tool:.0f} %", ""],
        ["CPU of a turn, median / slowest", f"{statistics.median(times):.0f} / {max(times):.0f} ms", "under 40 ms"],
    ]
    print_table(f"{title}: {count} requests, {len(offered)} tools on offer", ["what", "measured", "bar"], rows)
    if misses:
        print_table("Not exact", ["request", "tool", "arguments"], misses)


def main() -> None:
    offered = load_tools()
    asyncio.run(answer_request("What time is it in Tokyo?", offered))  # reads the time zones, once in a process
    measure_requests(
        "The rehearsal model, six MCP servers", offered, yaml.safe_load((FIXTURES / "requests.yaml").read_text())
    )
    others = yaml.safe_load((FIXTURES / "other_tools.yaml").read_text())
    specs = tuple(ToolSpec(**tool) for tool in others["tools"])
    measure_requests("The rehearsal model, other tools", specs, others["requests"])
