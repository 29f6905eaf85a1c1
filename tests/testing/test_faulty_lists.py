"""Each fault of lists, as a client sees it that follows the cursors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from testing.raw_pipes import RawPipes, start_raw_pipes

from holodeck.testing import Era, Fault


async def pages(server: RawPipes, at_most: int) -> list[dict[str, Any]]:
    """Follow the cursors, so far and no further."""
    made: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while len(made) < at_most:
        server.send("tools/list", **cursor)
        result = (await server.read_message())["result"]
        made.append(result)
        if "nextCursor" not in result:
            break
        cursor = {"cursor": result["nextCursor"]}
    return made


def listed(mode: Fault, era: Era, at_most: int = 1_001) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        async with start_raw_pipes(mode, era) as server:
            await server.shake_hands()
            return await pages(server, at_most)

    return asyncio.run(main())


both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


@both_eras
@pytest.mark.parametrize(
    ("mode", "count", "tools"),
    [
        (Fault.THOUSAND_PAGES, 1_000, 1_000),
        (Fault.THOUSAND_TOOLS, 10, 1_000),
        (Fault.TEN_THOUSAND_TOOLS, 100, 10_000),
    ],
)
def test_a_long_list_ends(mode: Fault, count: int, tools: int, era: Era) -> None:
    made = listed(mode, era)
    names = {tool["name"] for page in made for tool in page["tools"]}
    assert (len(made), len(names)) == (count, tools)
    assert {"add", "echo"} <= names


@both_eras
def test_a_cursor_leads_back_to_itself_or_ever_on(era: Era) -> None:
    assert {page["nextCursor"] for page in listed(Fault.LOOPING_CURSOR, era, 5)} == {"again"}
    assert len({page["nextCursor"] for page in listed(Fault.ENDLESS_PAGES, era, 5)}) == 5


@both_eras
def test_good_tools_are_listed_among_bad_ones(era: Era) -> None:
    (page,) = listed(Fault.INVALID_TOOL, era)
    assert None in page["tools"]
    assert {"add", "no_schema", ""} <= {tool.get("name") for tool in page["tools"] if isinstance(tool, dict)}
    (page,) = listed(Fault.BAD_HEADER_ANNOTATION, era)
    assert {"add", "header_number", "header_twice"} <= {tool["name"] for tool in page["tools"]}


@both_eras
def test_two_tools_have_the_same_name(era: Era) -> None:
    (page,) = listed(Fault.DUPLICATE_TOOLS, era)
    schemas = [tool["inputSchema"] for tool in page["tools"] if tool["name"] == "add"]
    assert len(schemas) == 2
    assert schemas[0] != schemas[1]


@both_eras
@pytest.mark.parametrize(
    ("mode", "sign"),
    [
        (Fault.SLOW_SCHEMA_REGEX, "(a+)+"),
        (Fault.SLOW_SCHEMA_REF, "#/$defs/d40"),
        (Fault.INVALID_SCHEMA, "no such type"),
        (Fault.REMOTE_REF, "http://"),
    ],
)
def test_an_output_schema_is_a_trap(mode: Fault, sign: str, era: Era) -> None:
    (page,) = listed(mode, era)
    (schema,) = [tool["outputSchema"] for tool in page["tools"] if tool["name"] == "structured"]
    assert sign in str(schema)


@both_eras
def test_the_answer_to_the_slow_pattern_is_one_that_it_is_slow_for(era: Era) -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.SLOW_SCHEMA_REGEX, era) as server:
            await server.shake_hands()
            await pages(server, 1)
            server.call("structured")
            assert (await server.read_message())["result"]["structuredContent"] == {"total": "a" * 40}

    asyncio.run(main())
