"""The agent file of an agent that a program has made, which `Agent.from_file` reads.

Values of variables, headers, tokens and keys are written as references such as `${API_KEY}`. What an agent file cannot
say is collected, and raised as one `ConfigError`.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from holodeck.agents.agent_spec import AgentSpec
from holodeck.agents.tools.function_tool import Tool
from holodeck.agents.tools.mcp_server import MCPServer
from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.redaction import url_secrets
from holodeck.lib.secret import Secret
from holodeck.models.auth import BearerAuth
from holodeck.models.llm import LLM
from holodeck.models.run_limits import RunLimits
from holodeck.models.tool import DEFAULT_REQUEST_TIMEOUT, AgentTool, FunctionTool, InMemoryTool, MCPTool
from holodeck.models.tool_rules import COMMANDS, USER_SETTINGS
from holodeck.providers.wrappers.output_format import to_object_format
from holodeck.tools.mcp.launch.plan import find_refusals

# Types that JSON has, which the functions of a file get as they are.
_JSON_TYPES = (str, int, float, bool, list, dict, type(None), Any)


class AgentWriter:
    """Writes one agent. `problems` has what an agent file cannot say."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the file will be. Its functions must be below it, and paths are relative to it."""
        self._folder = folder
        self._references: dict[str, str] = {}
        self.problems: list[str] = []

    def write(
        self,
        loaded: LoadedAgent,
        *,
        response_format: Mapping[str, Any] | None,
        servers: Sequence[MCPServer],
        functions: Sequence[Tool[..., Any]],
    ) -> str:
        """Return the YAML. `servers` and `functions`: those of the program. Raises `ConfigError`."""
        agent = loaded.agent
        entry: dict[str, Any] = {"name": agent.name}
        entry |= {"description": agent.description} if agent.description else {}
        entry |= {"author": agent.author} if agent.author else {}
        entry["model"] = self._describe_model(agent.model)
        if isinstance(agent.instructions, str):
            entry["instructions"] = agent.instructions
        schema = response_format if response_format is not None else agent.response_format
        entry |= {"response_format": schema} if isinstance(schema, Mapping) else {}
        entry |= {"max_turns": agent.max_turns} if "max_turns" in agent.model_fields_set else {}
        for server in servers:
            self._check_server(server)
        tools = [self._describe_tool(each.tool, each.folder) for each in loaded.tools if not each.is_personal]
        tools += [self._describe_function(each) for each in functions]
        self._check_names(tools)
        entry |= {"tools": tools} if tools else {}
        cases = [each.model_dump(mode="json", exclude_defaults=True) for each in agent.test_cases]
        entry |= {"test_cases": cases} if cases else {}
        if self.problems:
            raise ConfigError(problems=[Problem(message=f"An agent file cannot say {each}") for each in self.problems])
        return _dump({key: _escape(value) for key, value in entry.items()}, self._references)

    def _describe_model(self, llm: LLM) -> dict[str, Any]:
        entry = llm.model_dump(mode="json", exclude_defaults=True, exclude={"api_key", "headers", "fallback"})
        if llm.fallback:
            entry["fallback"] = [self._describe_model(each) for each in llm.fallback]
        if llm.api_key is not None:
            entry["api_key"] = self._refer(llm.api_key, llm.spec.key_variable or "API_KEY", "MODEL")
        if llm.headers:
            entry["headers"] = self._refer_all(llm.headers, "MODEL")
        return {"provider": str(llm.provider), **entry}

    def _describe_tool(self, tool: MCPTool | FunctionTool | AgentTool, folder: Path) -> dict[str, Any]:
        if isinstance(tool, AgentTool):
            entry = tool.model_dump(mode="json", exclude_defaults=True)
            file = {} if tool.file is None else {"file": self._relative(os.path.normpath(folder / tool.file))}
            return {"name": tool.name, "type": "agent", **entry, **file}
        if isinstance(tool, FunctionTool):
            entry = tool.model_dump(mode="json", exclude_defaults=True)
            return {"name": tool.name, "type": "function", **entry, "file": self._relative(str(folder / tool.file))}
        prefix = re.sub(r"\W", "_", tool.name).upper()
        left_out = {"name", "type", "env", "headers", "auth", "env_file", "cwd", "url", "roots", "allow_unsafe_args"}
        entry = tool.model_dump(mode="json", exclude_defaults=True, exclude=left_out)
        found: dict[str, Any] = {"name": tool.name, "type": "mcp", **entry}
        if tool.url:
            found["url"] = self._refer(Secret(tool.url), "URL", prefix) if url_secrets(tool.url) else tool.url
        if tool.starts_process and tool.cwd and Path(tool.cwd) != self._folder:
            found["cwd"] = self._relative(tool.cwd)
        if tool.roots:
            found["roots"] = [self._relative(each) for each in tool.roots]
        if tool.env:
            found["env"] = {name: self._refer(value, name, prefix) for name, value in tool.env.items()}
        if tool.headers:
            found["headers"] = self._refer_all(tool.headers, prefix)
        if tool.auth is not None:
            found["auth"] = self._describe_auth(tool, prefix)
        if find_refusals(tool.model_copy(update={"allow_unsafe_args": False})):
            found["allow_unsafe_args"] = True
        if tool.command is not None and tool.command not in COMMANDS:
            self.problems.append(
                f"that the program '{tool.command}' starts the server '{tool.name}': it starts npx, uvx and docker, "
                f"and others only if {USER_SETTINGS} allows them."
            )
        return found

    def _describe_auth(self, tool: MCPTool, prefix: str) -> dict[str, Any]:
        auth = tool.auth
        assert auth is not None  # noqa: S101 - the caller has checked it
        entry = auth.model_dump(mode="json", exclude_defaults=True, exclude={"token", "client_secret"})
        found = {"type": auth.type, **entry}
        if isinstance(auth, BearerAuth):
            return {**found, "token": self._refer(auth.token, f"{prefix}_TOKEN", prefix)}
        if auth.client_secret is not None:
            found["client_secret"] = self._refer(auth.client_secret, f"{prefix}_CLIENT_SECRET", prefix)
        return found

    def _describe_function(self, tool: Tool[..., Any]) -> dict[str, Any]:
        function = inspect.unwrap(tool.function)
        path = self._find_file(function, tool)
        if tool.takes_context:
            self.problems.append(f"the function '{tool.name}', which needs a RunContext.")
        parameters = inspect.signature(function).parameters.values() if inspect.isroutine(function) else ()
        hints = tool.argument_types
        others = [each.name for each in parameters if not _is_json(hints.get(each.name, Any))]
        if others:
            self.problems.append(
                f"the function '{tool.name}': it gives functions values of JSON, and '{others[0]}' has another type."
            )
        if tool.timeout != int(tool.timeout):
            self.problems.append(f"the timeout of the function '{tool.name}', which is not in whole seconds.")
        return {
            "name": tool.name,
            "type": "function",
            **({"description": tool.description} if tool.description else {}),
            "file": path,
            "function": getattr(function, "__name__", ""),
            "parameters": dict(tool.spec.parameters),
            **({"request_timeout": int(tool.timeout)} if tool.timeout != DEFAULT_REQUEST_TIMEOUT else {}),
        }

    def _find_file(self, function: Callable[..., Any], tool: Tool[..., Any]) -> str:
        """Return the path of a function of a module, relative to the folder."""
        module = sys.modules.get(getattr(function, "__module__", ""))
        at_top = getattr(module, getattr(function, "__name__", ""), None)
        is_there = at_top is function or (isinstance(at_top, Tool) and inspect.unwrap(at_top.function) is function)
        file = inspect.getsourcefile(function) if inspect.isfunction(function) else None
        if not is_there or file is None or not Path(file).resolve().is_relative_to(self._folder.resolve()):
            self.problems.append(
                f"the function '{tool.name}': it names functions at the top of a Python file below {self._folder}."
            )
            return ""
        return Path(file).resolve().relative_to(self._folder.resolve()).as_posix()

    def _check_server(self, server: MCPServer) -> None:
        if isinstance(server.tool, InMemoryTool):
            self.problems.append(f"the server '{server.name}', which is an object of the program.")
        for name in server.callback_names:
            self.problems.append(f"the '{name}' of the server '{server.name}', which is a function.")

    def _check_names(self, tools: Sequence[Mapping[str, Any]]) -> None:
        names = [each["name"] for each in tools]
        for name in sorted({each for each in names if names.count(each) > 1}):
            self.problems.append(f"that a function and a server are both called '{name}'.")

    def _refer_all(self, values: Mapping[str, Secret], prefix: str) -> dict[str, str]:
        names = {name: f"{prefix}_{re.sub(r'[^A-Za-z0-9]', '_', name)}".upper() for name in values}
        return {name: self._refer(value, names[name], prefix) for name, value in values.items()}

    def _refer(self, value: Secret, name: str, prefix: str) -> str:
        """Return the reference to a value. A name that has another value already gets the prefix, and then a number."""
        candidates = [name, f"{prefix}_{name}", *(f"{prefix}_{name}_{number}" for number in range(2, 1000))]
        for candidate in candidates:
            if self._references.setdefault(candidate, value.reveal()) == value.reveal():
                return _Reference(f"${{{candidate}}}")
        raise ConfigError(f"There are too many variables called '{name}'.")

    def _relative(self, path: str) -> str:
        given = Path(path)
        return given.relative_to(self._folder).as_posix() if given.is_relative_to(self._folder) else str(given)


def _is_json(kind: Any) -> bool:
    """Return whether values of a type are as JSON has them, and need no conversion."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _is_json(get_args(kind)[0])
    if origin is Literal:
        return all(isinstance(each, str | int | bool | None) for each in get_args(kind))
    if origin in (Union, types.UnionType, list, dict):
        return all(map(_is_json, get_args(kind)))
    return kind in _JSON_TYPES


def _escape(value: Any) -> Any:
    """Write texts with `$${` for each literal `${`. References of our own are kept."""
    if isinstance(value, str):
        return value if isinstance(value, _Reference) else value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: _escape(item) for key, item in value.items()}
    return [_escape(each) for each in value] if isinstance(value, list | tuple) else value


class _Reference(str):
    """A reference to a variable, such as `${API_KEY}`."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_Reference, _represent_text)


def _dump(entry: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    # The dumper indents no lists below keys; it cannot be told to.
    text = yaml.dump(dict(entry), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    notice = f"# Set these variables: {', '.join(sorted(variables))}\n" if variables else ""
    return notice + text


def write_agent(spec: AgentSpec, loaded: LoadedAgent) -> str:
    """Return an agent in code as an agent file. Raises `ConfigError` with everything that a file cannot say."""
    writer = AgentWriter(Path.cwd())
    if spec.model is not None:
        writer.problems.append(f"the model {spec.model.name!r}, which is an object of the program.")
    if spec.deps_type is not NoneType:
        writer.problems.append("the 'deps_type'.")
    if spec.build_instructions is not None:
        writer.problems.append("instructions that are a function of the program.")
    for each in spec.agents:
        writer.problems.append(f"the agent {each.agent.name!r} among its tools: give it a file of its own.")
    if spec.hooks:
        writer.problems.append("the hooks, which are code of the program.")
    if replace(spec.limits, turns=None) != RunLimits():
        writer.problems.append("limits other than that of turns.")
    if spec.limits.turns is not None:
        loaded = replace(loaded, agent=loaded.agent.model_copy(update={"max_turns": spec.limits.turns}))
    return writer.write(
        loaded,
        response_format=None if spec.output is None else to_object_format(spec.output.schema),
        servers=spec.servers,
        functions=spec.functions,
    )
