"""Agents as definitions: changed copies, agent files made from them, and what is refused."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pydantic
import pytest
from agent_project import serve_scripted
from async_tests import async_test

from holodeck import (
    LLM,
    Agent,
    ConfigError,
    FunctionCall,
    FunctionCallOutput,
    Hooks,
    ImageLink,
    MCPServer,
    Message,
    OAuthClientCredentials,
    RunContext,
    RunFinished,
    RunLimits,
    TextAdded,
    TextContent,
    tool,
)
from holodeck.models.items import text_message
from holodeck.models.model_io import ModelRequest
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

CODE = '''
from datetime import date

from holodeck import tool


def price(product: str, count: int = 1, tags: list[str] | None = None) -> str:
    """Price of a product.

    Args:
        product: Its name.
    """
    return f"{product}: {count}"


@tool(name="find_it", timeout=5)
async def find(where: str) -> str:
    """Find a product."""
    return f"in {where}"


def when(day: date) -> str:
    """Takes a date."""
    return str(day)


def build():
    def inner(word: str) -> str:
        return word

    return inner
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shop(folder: Path) -> Iterator[ModuleType]:
    """A module of the user, in the current folder."""
    (folder / "code").mkdir()
    (folder / "code" / "shop_of_test.py").write_text(CODE)
    spec = importlib.util.spec_from_file_location("shop_of_test", folder / "code" / "shop_of_test.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["shop_of_test"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["shop_of_test"]


@dataclass
class Offer:
    product: str
    euros: float


def first_request(model: ScriptedModel) -> ModelRequest:
    return model.requests[0]


# Changed copies


@pytest.mark.proves("D-42")
@async_test
async def test_a_changed_copy_leaves_the_first_agent_as_it_is() -> None:
    first = ScriptedModel(say("one"))
    second = ScriptedModel(say('{"product": "tea", "euros": 2}'))

    def price(product: str) -> str:
        """Price."""
        return product

    agent = Agent(first, name="one", instructions="Be brief.", tools=[price])
    changed = agent.with_(model=second, name="two", instructions="Be long.", tools=[], output_type=Offer)
    assert (await agent.run("q")).output == "one"
    assert (await changed.run("q")).output.euros == 2
    assert (agent.name, changed.name) == ("one", "two")
    assert (first_request(first).instructions, first_request(second).instructions) == ("Be brief.", "Be long.")
    assert ([each.name for each in first_request(first).tools], first_request(second).tools) == (["price"], ())


@async_test
async def test_a_copy_of_an_agent_of_a_file_keeps_its_tools_and_limits(folder: Path, shop: ModuleType) -> None:
    (folder / "agent.yaml").write_text(
        "name: shop\nmax_turns: 1\ntools: [{name: price, type: function, file: code/shop_of_test.py, function: price}]"
    )
    model = ScriptedModel(call("price", product="tea"), say("never asked"))
    changed = Agent.from_file("agent.yaml").with_(model=model)
    result = await changed.run("q")
    assert (result.status, [each.name for each in first_request(model).tools]) == ("incomplete", ["price"])
    assert changed.tools == ()
    more = changed.with_(model=(another := ScriptedModel(say("done"))), tools=[shop.find])
    await more.with_(tools=[*more.tools, shop.when]).run("q")
    assert [each.name for each in first_request(another).tools] == ["find_it", "when", "price"]


def test_a_change_that_does_not_exist_or_is_wrong_is_refused() -> None:
    agent = Agent("rehearsal")
    with pytest.raises(TypeError, match="no 'modle' to change"):
        agent.with_(modle="rehearsal")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="name"):
        agent.with_(name="1")


@async_test
async def test_an_agent_of_a_file_may_have_a_type_of_output_and_more_tools(folder: Path) -> None:
    def price(context: RunContext[float], product: str) -> float:
        """Price."""
        return context.deps

    (folder / "agent.yaml").write_text("name: shop\nresponse_format: {type: object}\n")
    model = ScriptedModel(call("price", product="tea"), say('{"product": "tea", "euros": 2}'))
    agent = Agent.from_file("agent.yaml", model=model, tools=[price], output_type=Offer, deps_type=float)
    assert (await agent.run("q", deps=2.5)).output == Offer("tea", 2)
    assert "2.5" in str(model.requests[1].items[-1])


class Colour(Enum):
    RED = "red"


ANY_OUTPUTS: list[tuple[Any, str, Any]] = [
    (list[Offer], '[{"product": "tea", "euros": 2}]', [Offer("tea", 2)]),
    (int, "7", 7),
    (Colour, '"red"', Colour.RED),
    (Offer | None, "null", None),
    (Offer | int, '{"product": "tea", "euros": 2}', Offer("tea", 2)),
]


@pytest.mark.parametrize(("kind", "text", "output"), ANY_OUTPUTS)
@async_test
async def test_an_output_of_any_type_is_the_bare_value_for_a_model_of_the_program(
    kind: Any, text: str, output: Any
) -> None:
    model = ScriptedModel(say(text))
    result = await Agent(model, output_type=kind).run("q")
    assert (result.output, result.text) == (output, text)
    assert first_request(model).response_format == pydantic.TypeAdapter(kind).json_schema()


@async_test
async def test_a_provider_gets_an_object_and_the_program_sees_the_value_in_it() -> None:
    # The second answer is without the object, as some models give it.
    async with serve_scripted(say('{"value": [{"product": "tea", "euros": 2}]}'), say("[]")) as server:
        agent = Agent(LLM(provider="openai_compatible", name="m", endpoint=server.url), output_type=list[Offer])
        events = [event async for event in agent.stream("q")]
        second = await agent.run("q")
    assert isinstance(events[-1], RunFinished)
    assert (events[-1].result.output, second.output) == ([Offer("tea", 2)], [])
    assert "value" not in events[-1].result.text
    assert "".join(event.text for event in events if isinstance(event, TextAdded)) == events[-1].result.text
    schema = server.received[0].json["response_format"]["json_schema"]["schema"]
    assert (schema["type"], schema["properties"]["value"]["type"]) == ("object", "array")


@async_test
async def test_an_answer_that_does_not_fit_is_told_to_the_model_with_the_reason() -> None:
    model = ScriptedModel(say('[{"product": "tea", "euros": "two"}]'), say("[]"))
    assert (await Agent(model, output_type=list[Offer]).run("q")).output == []
    assert "0.euros" in str(model.requests[1].items[-1])


# Agent files


def everything(shop: ModuleType, url: str) -> Agent[None, Offer]:
    return Agent(
        LLM(provider="openai_compatible", name="m", endpoint=url, api_key="k3y", temperature=0.5),
        name="shop",
        description="Sells pens.",
        instructions="Answer briefly.\nCosts ${NOTHING}.\n",
        output_type=Offer,
        tools=[
            MCPServer.stdio("npx", "-y", "@scope/server-files", "data", env={"API_KEY": "s3cret"}, roots=["data"]),
            MCPServer.stdio("uvx", "mcp-server-time", name="time", env={"API_KEY": "other"}, request_timeout=5),
            MCPServer.http("https://a.example.com/mcp", auth="t0ken", headers={"X-Team": "blue"}, approval="always"),
            MCPServer.http(
                "https://b.example.com/mcp?key=hidden",
                name="b",
                auth=OAuthClientCredentials(
                    client_id="me",
                    client_secret="hush",
                    token_url="https://b.example.com/token",
                ),
                approval={"always": ["delete_*"]},
            ),
            shop.price,
            shop.find,
        ],
    )


VARIABLES = {
    "API_KEY": "k3y",
    "FILES_API_KEY": "s3cret",
    "TIME_API_KEY": "other",
    "A_EXAMPLE_TOKEN": "t0ken",
    "A_EXAMPLE_X_TEAM": "blue",
    "URL": "https://b.example.com/mcp?key=hidden",
    "B_CLIENT_SECRET": "hush",
}


@pytest.mark.proves("D-42")
def test_an_agent_becomes_a_file_that_is_read_to_an_equal_agent(folder: Path, shop: ModuleType) -> None:
    agent = everything(shop, "http://127.0.0.1:1/v1")
    text = agent.to_yaml()
    for secret in ("k3y", "s3cret", "other", "t0ken", "blue", "hidden", "hush"):
        assert secret not in text
    assert text.startswith(f"# Set these variables: {', '.join(sorted(VARIABLES))}\n")
    (folder / "agent.yaml").write_text(text)
    read = Agent.from_file("agent.yaml", environ=VARIABLES, home=folder)
    assert read.to_yaml() == text
    ours, theirs = agent._loaded.agent, read._loaded.agent
    assert (theirs.model, theirs.instructions, theirs.description) == (ours.model, ours.instructions, ours.description)
    servers = {each.name: each for each in theirs.tools if each.type == "mcp"}
    for each in agent._spec.servers:
        expected = each.tool.model_copy(update={"allow_unsafe_args": False})
        assert servers[each.name] == expected


@async_test
async def test_the_functions_of_the_file_do_the_same(folder: Path, shop: ModuleType) -> None:
    script = [[call("price", product="tea"), call("find_it", where="here")], say("done")]
    models = [ScriptedModel(*script), ScriptedModel(*script)]
    agent = Agent(LLM(), tools=[shop.price, shop.find])
    (folder / "agent.yaml").write_text(agent.to_yaml())
    await agent.with_(model=models[0]).run("q")
    await Agent.from_file("agent.yaml", model=models[1]).run("q")
    assert models[0].requests[0].tools == models[1].requests[0].tools
    outputs = [[getattr(item, "content", None) for item in model.requests[1].items[-2:]] for model in models]
    assert outputs[0] == outputs[1]
    assert "in here" in str(outputs[0])


def test_everything_that_a_file_cannot_say_is_listed_at_once(folder: Path, shop: ModuleType) -> None:
    def local(context: RunContext[int], word: str) -> str:
        return word

    agent = Agent(
        ScriptedModel(),
        deps_type=int,
        tools=[
            shop.when,
            shop.build(),
            local,
            MCPServer.stdio("python", "server.py", on_log=print),
        ],
    )
    with pytest.raises(ConfigError) as caught:
        agent.to_yaml()
    text = str(caught.value)
    assert len(caught.value.problems) == 8
    for part in (
        "the model 'scripted'",
        "'deps_type'",
        "'when': it gives functions values of JSON, and 'day'",
        "'inner': it names functions at the top of a Python file",
        "'local', which needs a RunContext",
        "the program 'python'",
        "'on_log' of the server 'server'",
    ):
        assert part in text


# What is refused


def test_names_that_occur_twice_are_refused(shop: ModuleType) -> None:
    servers = [MCPServer.stdio("npx", "-y", "@scope/server-files", each) for each in ("a", "b")]
    with pytest.raises(ConfigError, match=r"Two MCP servers of the agent are called 'files'.*name="):
        Agent("rehearsal", tools=servers)
    Agent("rehearsal", tools=[servers[0], MCPServer.stdio("npx", "-y", "@scope/server-files", "b", name="other")])
    with pytest.raises(ConfigError, match="Two functions of the agent are called 'price'"):
        Agent("rehearsal", tools=[shop.price, tool(name="price")(shop.find.function)])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "gpt-5"}, "names no model: write 'provider:name'"),
        ({"model": "opnai:gpt-5"}, "Did you mean 'openai:gpt-5'"),
        ({"model": "openai"}, "'name' is required"),
        ({"model": 3}, "3 is no model"),
        ({"model": "rehearsal", "name": "1 bad"}, "name"),
        ({"model": "rehearsal", "instructions": ""}, "instructions"),
        ({"model": "rehearsal", "tools": ["text"]}, "'text' is no tool"),
        ({"model": "rehearsal", "tools": "text"}, "'tools' is a str: give a list"),
        ({"model": "rehearsal", "output_type": ModuleType}, "'output_type' cannot be described"),
        ({"model": "rehearsal", "output_type": lambda: 3}, "'output_type' is the function"),
        ({"model": "rehearsal", "output_type": "Offer"}, "'output_type' is a str: give a type, such as"),
    ],
)
def test_wrong_agents_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Agent(**keys)


# Own models


@async_test
async def test_messages_of_openai_programs_are_accepted_as_history_and_as_question() -> None:
    model = ScriptedModel(say("Hello."))
    asked = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "I am Ada."}]},
        {"role": "assistant", "content": None, "tool_calls": [asked], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
    ]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}
    await Agent(model).run([{"role": "user", "content": [image]}], history=history)
    assert model.requests[0].items == (
        text_message("system", "Be brief."),
        text_message("user", "I am Ada."),
        FunctionCall(call_id="call_1", name="find", arguments="{}"),
        FunctionCallOutput(call_id="call_1", content=(TextContent(text="found"),)),
        Message(role="user", content=(ImageLink(url="data:image/png;base64,AA==", detail="low"),)),
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([{"content": "I am Ada."}], r"\[0\] is a dict without a 'role'.*history=result.history"),
        ([("user", "I am Ada.")], r"\[0\] is a tuple.*history=result.history"),
        ({"role": "user", "content": "I am Ada."}, "is a dict: give a"),
        (5, "is an int: give a"),
        ([5], r"\[0\] is an int, which is no item"),
        ([{"role": "user"}], r"\[0\].content is missing: give a text"),
        ([{"role": "person", "content": "I am Ada."}], "role is 'person'. Roles: 'system'"),
        ([{"role": "user", "parts": ["I am Ada."]}], "has 'parts'"),
        ([{"role": "user", "content": [{"type": "input_file"}]}], "of the type 'input_file'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\].text is missing: give a text"),
        ([{"role": "tool", "content": "found"}], "tool_call_id is missing"),
        ([{"role": "assistant", "tool_calls": [{"id": "call_1"}]}], "is no call of a function"),
        ([Message(role="user", content=cast("Any", "Hi"))], r"\[0\].content is a str: give parts"),
        ([Message(role="user", content=cast("Any", ["Hi"]))], r"\[0\].content\[0\] is a str: give parts"),
        ([Message(role=cast("Any", "person"), content=())], "role is 'person'. Roles: 'system'"),
        ([FunctionCall(call_id="1", name="f", arguments=cast("Any", {}))], r"\[0\].arguments is a dict: give a text"),
    ],
)
@async_test
async def test_a_conversation_of_the_wrong_form_is_refused_and_not_dropped(wrong: Any, message: str) -> None:
    model = ScriptedModel(say("Hello."))
    with pytest.raises(ConfigError, match=message):
        await Agent(model).run("Hi", history=wrong)
    with pytest.raises(ConfigError, match=message):
        await Agent(model).run(wrong)
    with pytest.raises(ConfigError, match="'question' is empty"):
        await Agent(model).run([])
    assert model.requests == []


@async_test
async def test_a_model_of_the_program_is_used_and_not_closed() -> None:
    class Counting(ScriptedModel):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    model = Counting(say("one"), say("two"))
    agent = Agent(model)
    assert [(await agent.run("q")).output for _ in range(2)] == ["one", "two"]
    assert model.closed == 0


@async_test
async def test_the_servers_of_an_agent_end_with_its_run(tmp_path: Path) -> None:
    async with FaultyMCPServer() as running:
        agent = Agent(ScriptedModel(call("add", a=1, b=2), say("3")), tools=[MCPServer.http(running.url)])
        assert (await agent.run("q")).output == "3"
        await running.received("DELETE")


def test_a_notebook_shows_the_agent_by_its_model_and_the_result_as_markdown() -> None:
    agent = Agent(ScriptedModel(say("It is **2**.")), name="clerk")
    assert repr(agent) == "Agent('scripted', name='clerk')"
    assert repr(Agent("openai:gpt-5-mini")) == "Agent('openai:gpt-5-mini', name='agent')"
    assert repr(Agent("rehearsal")) == "Agent('rehearsal', name='agent')"
    assert agent.run_sync("q")._repr_markdown_() == "It is **2**."
    stopped = Agent(ScriptedModel(call("price")), tools=[tool(name="price")(lambda: 2)], limits=RunLimits(turns=1))
    assert "turn" in stopped.run_sync("q")._repr_markdown_()


def test_a_notebook_shows_a_server_by_its_name_and_nothing_secret() -> None:
    server = MCPServer.stdio("npx", "-y", "some-server", name="clock", env={"API_KEY": "not-to-be-shown"})
    assert repr(server) == "MCPServer(name='clock', transport='stdio')"


class _Guard(Hooks[None]):
    pass


class _Opaque:
    pass


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"tools": len}, r"'tools' is the function 'len': give a list"),
        ({"hooks": _Guard()}, r"'hooks' is a _Guard: give a list"),
        ({"hooks": [_Guard]}, r"the class '_Guard' is no hook: give an object"),
        ({"hooks": [print]}, r"the function 'print' is no hook"),
        ({"limits": {"turns": 1}}, r"'limits' is a dict: give RunLimits"),
        ({"on_approval": True}, r"'on_approval' is a bool: give a function"),
        ({"on_elicitation": "ask"}, r"'on_elicitation' is a str: give a function"),
        ({"output_type": [int, str]}, r"'output_type' is a list: give a type. Did you mean int \| str\?"),
        ({"output_type": {"type": "object"}}, r"'output_type' is a dict: give a type"),
        ({"output_type": 5}, r"'output_type' is an int: give a type"),
        ({"output_type": _Opaque}, r"cannot be described to a model: [^\n]*_Opaque'>. Give a pydantic model[^\n]*$"),
    ],
)
def test_a_part_of_the_wrong_type_is_refused_in_one_sentence(option: dict[str, Any], message: str) -> None:
    agent = Agent(ScriptedModel(say("Hello.")))
    with pytest.raises(ConfigError, match=message):
        Agent(ScriptedModel(), **option)
    with pytest.raises(ConfigError, match=message):
        agent.with_(**option)
    if not option.keys() & {"tools", "output_type"}:
        with pytest.raises(ConfigError, match=message):
            agent.run_sync("Hi", **option)


def test_a_script_of_a_plain_text_says_what_to_write() -> None:
    script: Any = "hello"
    with pytest.raises(TypeError, match=r"'hello' is no turn of a script: write say\('hello'\)"):
        Agent(ScriptedModel(script)).run_sync("Hi")
