"""Keys of agent files of `holodeck-ai`, another program with an `agent.yaml`, and what to write here instead."""

from __future__ import annotations

from collections.abc import Mapping

from holodeck.config.yaml_reader import KeyPath

_CHECKS = "Say what an answer must be in each test case, with 'judge', 'similar' and others."
_SEARCH = "Use an MCP server that searches or reads your documents, such as '@modelcontextprotocol/server-filesystem'."
# By key path, without the positions in lists.
_KEYS: Mapping[tuple[str, ...], str] = {
    ("evaluations",): _CHECKS,
    (
        "execution",
    ): "Limits are 'max_turns' and 'timeout' of 'model'; 'holodeck test --jobs N' runs test cases at once.",
    ("observability",): "Traces are set up in gateway.yaml, with 'otel'.",
    ("deployment",): "'holodeck serve' runs the agent for others, see 'holodeck docs operate/deploy'.",
    ("embedding_provider",): _SEARCH,
    ("claude",): "Settings of the model belong into 'model'; 'approval' of a tool says which calls need a person.",
    ("openai",): "Settings of the model belong into 'model'; 'approval' of a tool says which calls need a person.",
    ("model", "auth_provider"): "A key is given with 'api_key'.",
    ("tools", "defer_loading"): "All tools are offered at once. Remove it.",
    ("tools", "is_retrieval"): "Remove it.",
    ("tools", "registry_name"): "Remove it.",
    ("test_cases", "evaluations"): _CHECKS,
    ("test_cases", "files"): "Put what the agent needs into its tools, or into 'input'.",
    ("test_cases", "retrieval_context"): "A judge sees the results of the tools: use 'judge'.",
    ("test_cases", "turns"): "A case has one question: write one case for each 'input'.",
}
_TOOL_TYPES: Mapping[str, str] = {
    "vectorstore": _SEARCH,
    "hierarchical_document": _SEARCH,
    "prompt": "Write the prompt into 'instructions', or a function that asks a model.",
}


def find_replacement(path: KeyPath) -> str:
    """Return what to write instead of a key of `holodeck-ai`; empty for any other key."""
    return _KEYS.get(tuple(part for part in path if isinstance(part, str)), "")


def find_tool_replacement(kind: object) -> str:
    """Return what to use instead of a type of tools of `holodeck-ai`; empty for any other."""
    return _TOOL_TYPES.get(kind, "") if isinstance(kind, str) else ""
