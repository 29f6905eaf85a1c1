"""Whatever a file holds, it ends in an agent or in an error with a place; never in a traceback or a hang."""

from __future__ import annotations

import pytest
from agent_folder import AgentFolder

from holodeck.config.files import MAX_FILE_BYTES

HAZARDS = {
    "empty": (b"", "the file is empty"),
    "only a comment": (b"# nothing\n", "the file is empty"),
    "a list": (b"- a\n- b\n", "must be a mapping"),
    "a text": (b"hello\n", "must be a mapping"),
    "tabs": (b"name: demo\nmodel:\n\tprovider: openai\n", "Indent with spaces"),
    "duplicate key": (b"name: a\nname: b\n", "given twice (first in line 1)"),
    "not utf-8": (b"name: caf\xe9\n", "not UTF-8"),
    "utf-16": ("name: demo\n".encode("utf-16"), "not UTF-8"),
    "control character": (b"name: a\x07b\n", "control character"),
    "two documents": (b"name: a\n---\nname: b\n", "more than one YAML document"),
    "python object": (b"name: !!python/object/apply:os.system [id]\n", "must be text"),
    "python scalar tag": (b"name: !!python/name:os.system ''\n", "tag is not allowed"),
    "unclosed": (b"name: [a\n", "not valid YAML"),
    "colon in a text": (b"name: demo\ninstructions: Answer: in one word\n", "is written in quotes"),
    "undefined alias": (b"name: *nobody\n", "anchor"),
    "alias of itself": (b"tools: &a [*a]\n", "refers to the value that contains it"),
    "key that is a list": (b"? [a, b]\n: c\nname: demo\n", "a key must be plain text"),
    "deep nesting": (b"name: " + b"[" * 5000 + b"]" * 5000, "nest"),
    "too large": (b"name: demo\n#" + b"x" * (MAX_FILE_BYTES + 1), "larger than"),
    "50 MB": (b"name: demo\n# " + b"x" * 50_000_000, "larger than"),
}


@pytest.mark.parametrize(("content", "words"), HAZARDS.values(), ids=HAZARDS)
@pytest.mark.proves("000:SC-004", "D-5")
def test_a_bad_file_is_an_error_that_says_what_is_wrong(folder: AgentFolder, content: bytes, words: str) -> None:
    assert words in str(folder.load_error(content))


@pytest.mark.proves("D-5")
def test_a_yaml_bomb_is_refused_before_it_unfolds(folder: AgentFolder) -> None:
    lines = ['a0: &a0 ["x", "x", "x", "x", "x", "x", "x", "x", "x"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "expands to more than" in str(folder.load_error("\n".join(lines)))


def test_anchors_and_merge_keys_work_as_people_use_them(folder: AgentFolder) -> None:
    text = """
name: demo
tools:
  - &base {type: mcp, name: one, description: d, command: npx, server: a, request_timeout: 5}
  - <<: *base
    name: two
"""
    assert [tool.name for tool in folder.load(text).agent.tools] == ["one", "two"]


def test_words_that_old_yaml_takes_for_booleans_stay_words(folder: AgentFolder) -> None:
    loaded = folder.load("name: no\ndescription: on\n")
    assert (loaded.agent.name, loaded.agent.description) == ("no", "on")


def test_a_byte_order_mark_and_crlf_do_no_harm(folder: AgentFolder) -> None:
    assert folder.load(b"\xef\xbb\xbfname: demo\r\ndescription: d\r\n").agent.name == "demo"


@pytest.mark.proves("D-5")
def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_file(folder: AgentFolder) -> None:
    text = """name: demo
modle: {provider: openai}
instructions: {file: gone.md}
max_turns: 0
tools:
  - type: mcp
    name: a
    comand: npm
    request_timeout: soon
  - type: mcp
    name: b
    transport: http
    url: http://example.com
    headers: {X: "${GONE}"}
"""
    found = [(problem.line, problem.key) for problem in folder.load_errors(text)]
    assert found == [
        (2, "modle"),
        (2, "model.name"),
        (3, "instructions.file"),
        (4, "max_turns"),
        (8, "tools[0].comand"),
        (8, "tools[0].command"),
        (9, "tools[0].request_timeout"),
        (13, "tools[1].url"),
        (14, "tools[1].headers.X"),
    ]


@pytest.mark.proves("D-5")
@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("name: demo\ntool: []\n", "'tools'"),
        ("name: demo\nmax-turns: 3\n", "'max_turns'"),
        ("name: demo\nmodel: {provider: openai, name: x, temprature: 1}\n", "'temperature'"),
        ("name: demo\nmodel: {provider: opnai, name: x}\n", "'openai'"),
        (
            "name: demo\ntools: [{type: mcp, name: t, server: x, command: npx, requestTimeout: 3}]\n",
            "'request_timeout'",
        ),
        ("name: demo\ntools: [{type: function, name: t, file: f.py, function: f, paramters: {}}]\n", "'parameters'"),
        ("name: demo\ntest_cases: [{input: a, expected_tool: [b]}]\n", "'expected_tools'"),
    ],
)
def test_an_unknown_key_or_word_gets_a_suggestion(folder: AgentFolder, text: str, suggestion: str) -> None:
    folder.write("f.py", "def f(): ...\n")
    assert any(f"Did you mean {suggestion}?" in problem.fix for problem in folder.load_errors(text))


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("evaluations: {metrics: []}", "evaluations", "'judge'"),
        ("execution: {llm_timeout: 60}", "execution", "'max_turns'"),
        ("observability: {enabled: true}", "observability", "'otel'"),
        ("deployment: {}", "deployment", "'holodeck serve'"),
        ("embedding_provider: {}", "embedding_provider", "MCP server that searches"),
        ("claude: {permission_mode: manual}", "claude", "'approval'"),
        ("model: {provider: anthropic, name: x, auth_provider: api_key}", "auth_provider", "'api_key'"),
        ("test_cases: [{input: a, files: []}]", "files", "'input'"),
        ("test_cases: [{input: a, evaluations: []}]", "evaluations", "'judge'"),
        ("tools: [{type: vectorstore, name: t, source: d}]", "vectorstore", "MCP server that searches"),
        ("tools: [{type: prompt, name: t, template: d}]", "prompt", "'instructions'"),
    ],
)
def test_what_another_program_s_agent_file_has_is_refused_with_what_to_write_here(
    folder: AgentFolder, text: str, key: str, words: str
) -> None:
    problems = folder.load_errors(f"name: demo\nauthor: Ada\n{text}\n")
    (problem,) = [problem for problem in problems if f"'{key}'" in problem.message]
    assert words in problem.fix


def test_a_file_that_is_not_there_and_a_folder_are_errors(folder: AgentFolder) -> None:
    assert "no such file" in str(folder.load_error())
    (folder.path / "agent.yaml").mkdir()
    assert "a folder" in str(folder.load_error())
