"""The actions of a file, once it is used: the models it asks, the programs it starts, the addresses it dials, the
Python code it imports, the scripts that it runs, and the files that it reads.

`list_actions` derives them from what a loader has returned, and nothing is started, dialled or read for it. Details are
texts as written in the file: references instead of the values of variables, and `***` instead of a literal secret, of
which a new one does nothing else. No detail has a digest of a secret. `Actions.digest` is the trust digest. It changes
with everything that acts, and with nothing else: not with a comment, a description, a time limit or a test case, apart
from the models of tests. Keys that are not known to be inert count, so that a new key counts until it is listed here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from holodeck.config.agent_loader import LoadedAgent, LoadedTool
from holodeck.config.checks import list_test_models
from holodeck.config.problems import value_at
from holodeck.config.server_loader import LoadedServers
from holodeck.config.source import FileRead
from holodeck.config.yaml_reader import format_key_path
from holodeck.lib.record import record
from holodeck.lib.redaction import MASK, is_inert_secret, mask_arguments, mask_url
from holodeck.models.llm import LLM
from holodeck.models.provider import Provider
from holodeck.models.tool import AgentTool, FunctionTool, MCPTool

# The commands for agents do not need the models of a gateway, whose import is slow.
if TYPE_CHECKING:
    from holodeck.config.gateway_loader import LoadedGateway

ActionKind = Literal["model", "process", "connection", "code", "script", "file", "variables", "gateway", "shared"]

NOT_COVERED = "not covered"
"""The label of the number of files that may change without another digest: their folder has too many to hash them."""
NO_KEY = "none"
"""The text for a model that gets no key."""
# A digest of another format would be another one for the same file.
_FORMAT = b"holodeck actions 1\n"
# Characters of a value that are shown. A longer one is shown by its beginning and a digest.
_MAX_VALUE_CHARS = 2_000
_INERT_MODEL_KEYS = frozenset(
    {
        "provider",
        "endpoint",
        "api_key",
        "name",
        "temperature",
        "max_tokens",
        "top_p",
        "timeout",
        "api_version",
        "fallback",
        "use",
    }
)
"""Keys of a model that do not act, or have a detail of their own."""
_INERT_SERVER_KEYS = frozenset(
    {"name", "description", "type", "enabled", "required", "encoding"}
    | {"timeout", "sse_read_timeout", "request_timeout", "startup_timeout", "terminate_on_close"}
    | {"max_concurrent_calls", "max_result_bytes"}
    | {"command", "args", "server", "transport", "url", "cwd"}
)
"""Keys of a server that do not act, or have a detail of their own."""
_INERT_GATEWAY_KEYS = frozenset(
    {"models", "agents", "mcp_servers", "keys", "groups", "limits", "log", "background", "mcp_output", "reload"}
)
"""Keys of a gateway file that do not act, or are actions of their own."""
_REFERENCE = re.compile(r"(?<!\$)\$\{")


@record
class Action:
    """One thing that a file would do. `details` are pairs of a label and a text, all of them to be shown."""

    kind: ActionKind
    name: str
    """Name of the model, server, file or key. Unique among the actions of a kind."""
    details: tuple[tuple[str, str], ...] = ()
    is_personal: bool = False
    """True for what the user's own settings add. It is no part of the digest, which is the same on every machine."""

    def to_data(self) -> dict[str, Any]:
        """Return the action as plain data."""
        return {"kind": self.kind, "name": self.name, "details": [list(detail) for detail in self.details]}


@record
class Actions:
    """Everything that a file would do, sorted by kind and name."""

    actions: tuple[Action, ...]
    is_whole: bool = True
    """False: only the servers of the file were read, as commands without a model do."""

    def select_code(self) -> Actions:
        """Return only the Python code that is imported: all that acts while models and servers are replayed."""
        return Actions(actions=tuple(action for action in self.actions if action.kind == "code"), is_whole=False)

    @property
    def not_covered(self) -> int:
        """How many files that are run are no part of the digest."""
        return sum(int(text) for action in self.actions for label, text in action.details if label == NOT_COVERED)

    @property
    def digest(self) -> str:
        """The trust digest: `sha256:` and 64 hexadecimal digits."""
        data = [action.to_data() for action in self.actions if not action.is_personal]
        text = json.dumps(data, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        return f"sha256:{sha256(_FORMAT + text.encode()).hexdigest()}"


def list_actions(loaded: LoadedAgent | LoadedGateway | LoadedServers) -> Actions:
    """List everything that a loaded file would do."""
    if isinstance(loaded, LoadedAgent):
        return _sort(_agent_actions(loaded))
    if isinstance(loaded, LoadedServers):
        return _sort([*_tool_actions(loaded.tools), *_read_actions(loaded.reads)], is_whole=False)
    return _sort(_gateway_actions(loaded))


def describe_not_covered(number: int) -> str:
    """Return what this number of files that are not covered means for the user."""
    files = "1 file is not covered: it" if number == 1 else f"{number:,} files are not covered: they"
    return f"{files} may change, and you are not asked again."


def describe_key(model: LLM, written: Mapping[str, Any]) -> str:
    """Return where the key of a model comes from: a variable, a reference or a file, never the key itself.

    `written` is the model as written in its file.
    """
    for name in ("api_key", "api_key_file"):
        if written.get(name) is not None:
            text = str(written[name])
            # A literal key is a secret, whatever it looks like.
            return f"api_key_file {text}" if name == "api_key_file" else text if _REFERENCE.search(text) else MASK
    return model.environment_key or NO_KEY


def describe_endpoint(model: LLM, written: Mapping[str, Any]) -> str:
    """Return the address that gets the requests of a model, as written in its file; empty if none does."""
    if not model.spec.is_service:
        return ""
    endpoint = written.get("endpoint")
    if isinstance(endpoint, str):
        return mask_url(endpoint)
    return model.spec.own_hosts[0] if model.spec.own_hosts else model.spec.default_endpoint or ""


def describe_server(tool: MCPTool, written: Mapping[str, Any]) -> str:
    """Return how a server is started or reached, as written in its file: its command line or its URL."""
    if not tool.starts_process:
        return mask_url(str(written.get("url") or ""))
    args = written.get("args")
    words = mask_arguments([str(arg) for arg in args]) if isinstance(args, list) else [str(written.get("server") or "")]
    return shlex.join([str(tool.command), *(word for word in words if word or isinstance(args, list))])


def _sort(actions: Iterable[Action], *, is_whole: bool = True) -> Actions:
    # An agent's file may be served twice by a gateway.
    unique = dict.fromkeys(actions)
    return Actions(
        actions=tuple(sorted(unique, key=lambda action: (action.kind, action.name, action.details))), is_whole=is_whole
    )


def _agent_actions(loaded: LoadedAgent, prefix: str = "") -> Iterator[Action]:
    acting = list(_acting_parts(loaded, prefix))
    for name, asked in loaded.agents.items():
        acting += _agent_actions(asked, f"{prefix}{name}/")
    yield from acting
    # Instructions from the folder do something by what acts on them only.
    if acting:
        yield from _read_actions([each for each in loaded.reads if each.is_inside], prefix)


def _acting_parts(loaded: LoadedAgent, prefix: str) -> Iterator[Action]:
    yield from _model_actions(loaded.agent.model, loaded.written.get("model"), prefix.rstrip("/") or "model")
    # A gateway that serves the agent runs no test cases.
    for path, model in () if prefix else list_test_models(loaded.agent):
        yield from _model_actions(model, value_at(loaded.written, path), format_key_path(path))
    yield from _tool_actions(loaded.tools, prefix)
    yield from _read_actions([each for each in loaded.reads if not each.is_inside], prefix)
    for file, digest in loaded.code.items():
        yield Action(kind="code", name=f"{prefix}{file}", details=(("sha256", digest),))


def _gateway_actions(loaded: LoadedGateway) -> Iterator[Action]:
    agents = loaded.agents
    # The gateway of one agent: all that is its own comes from variables of the user.
    if not loaded.written:
        for agent in agents.values():
            yield from _agent_actions(agent)
        return
    for key, value in loaded.written.items():
        if key not in _INERT_GATEWAY_KEYS:
            yield Action(kind="gateway", name=key, details=tuple(_value_details(key, value)))
    written = _by_name(loaded.written.get("models"))
    for name, served in loaded.models.items():
        entry = written.get(name, {})
        yield from _model_actions(served.model, entry.get("model"), name)
    yield from _tool_actions(loaded.servers)
    yield from _read_actions(loaded.reads)
    for name, agent in agents.items():
        yield from _agent_actions(agent, f"{name}/")


def _by_name(entries: Any) -> dict[str, Mapping[str, Any]]:
    listed = entries if isinstance(entries, list) else []
    return {str(entry.get("name")): entry for entry in listed if isinstance(entry, dict)}


def _model_actions(model: LLM, entry: Any, name: str) -> Iterator[Action]:
    written = entry if isinstance(entry, dict) else {}
    for (label, stand_in), each in zip(model.stand_ins.items(), written.get("fallback") or (), strict=False):
        yield from _model_actions(stand_in, each, f"{name}/{label}")
    if model.deployments:
        shared = {key: value for key, value in written.items() if key not in ("deployments", "fallback")}
        listed = zip(model.list_deployments(), written.get("deployments") or (), strict=False)
        for number, (each, own) in enumerate(listed, 1):
            yield from _model_actions(each, {**shared, **own}, f"{name}/{number}")
        return
    # It is built in, and neither a process nor an address.
    if model.provider is Provider.REHEARSAL:
        return
    details = [("provider", str(model.provider))]
    if model.spec.is_service:
        details += [("endpoint", describe_endpoint(model, written)), ("key", describe_key(model, written))]
    else:
        details.append(("name", model.name or ""))
    for key, value in written.items():
        if key not in _INERT_MODEL_KEYS and key != "api_key_file":
            details += _value_details(key, value)
    yield Action(kind="model", name=name, details=tuple(details))


def _tool_actions(tools: Iterable[LoadedTool], prefix: str = "") -> Iterator[Action]:
    for item in tools:
        tool = item.tool
        if isinstance(tool, AgentTool):
            # The actions of its own file are listed, and an agent of the gateway has them there.
            continue
        if isinstance(tool, FunctionTool):
            details = (("calls", f"{tool.function} in {item.written.get('file')}"),)
            yield Action(kind="code", name=f"{prefix}{tool.name}", details=details)
        elif item.is_personal and tool.enabled:
            yield Action(kind="shared", name=tool.name, is_personal=True)
        elif tool.enabled:
            yield _server_action(tool, item.written, prefix)
            for file, digest in item.files.digests.items():
                yield Action(kind="script", name=f"{prefix}{file}", details=(("sha256", digest), ("path", file)))
            for path, count in item.files.uncovered.items():
                number = (NOT_COVERED, str(count))
                yield Action(kind="script", name=f"{prefix}{path}", details=(number, ("path", path)))


def _server_action(tool: MCPTool, written: Mapping[str, Any], prefix: str) -> Action:
    name = f"{prefix}{tool.name}"
    others = [
        detail
        for key, value in sorted(written.items())
        if key not in _INERT_SERVER_KEYS
        for detail in _value_details(key, value)
    ]
    target = describe_server(tool, written)
    if not tool.starts_process:
        return Action(kind="connection", name=name, details=(("url", target), *others))
    folder = ("folder", str(written.get("cwd") or "."))
    return Action(kind="process", name=name, details=(("command", target), folder, *others))


def _read_actions(reads: Iterable[FileRead], prefix: str = "") -> Iterator[Action]:
    for each in reads:
        if each.variables:
            details = tuple((name, _cut(_mask(name, value))) for name, value in each.variables)
            yield Action(kind="variables", name=f"{prefix}{each.path}", details=details)
        else:
            yield Action(kind="file", name=f"{prefix}{each.path}", details=(("sha256", each.sha256),))


def _value_details(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the details of one key: one for each entry of a mapping, such as `env`, else one."""
    if isinstance(value, dict) and value:
        for name, item in sorted(value.items(), key=lambda pair: str(pair[0])):
            yield f"{key}.{name}", _mask(str(name), item)
    else:
        yield key, _mask(key, value)


def _mask(key: str, value: Any) -> str:
    """Return the text of a value, as JSON unless it is a text. Literal secrets are masked."""
    masked = _mask_literals(key, value)
    return masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False, sort_keys=True, default=str)


def _mask_literals(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _mask_literals(str(name), item) for name, item in value.items()}
    if isinstance(value, list):
        return [_mask_literals(key, item) for item in value]
    if not isinstance(value, str):
        return value
    if is_inert_secret(key, value) and not _REFERENCE.search(value):
        return MASK
    return mask_url(value) if "://" in value else value


def _cut(text: str) -> str:
    if len(text) <= _MAX_VALUE_CHARS:
        return text
    digest = sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{text[:_MAX_VALUE_CHARS]}… ({len(text)} characters, sha256:{digest})"
