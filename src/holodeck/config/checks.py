"""Checks beyond the form of a file: test cases, and what an agent or gateway needs on this machine before it starts.

Test cases are checked for patterns, schemas, paths, and the models that judge; the machine for extras, folders and
files. `holodeck validate`, `run` and `serve` use the same checks, through the loaders, so that none of them refuses
what another accepts. A check reads the file system only: it imports, starts, dials, executes and creates nothing. It
gets a validated file, and returns problems with the position of the key that each is about.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from holodeck.config.files import read_bytes
from holodeck.config.known_keys import closest_match
from holodeck.config.problems import problem_at, value_at
from holodeck.config.source import Source
from holodeck.config.yaml_reader import KeyPath
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem
from holodeck.lib.extras import Extra, install_hint, is_installed
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.path import parse_json_path
from holodeck.lib.json.schema import SchemaError, check_schema
from holodeck.lib.limits import MIN_SEAL_KEY_BYTES
from holodeck.models.agent import Agent
from holodeck.models.auth import OAuthClientCredentials
from holodeck.models.file_model import Substituted, quote_value
from holodeck.models.llm import LLM, is_same_model
from holodeck.models.provider import Provider
from holodeck.models.storage_url import is_in_memory, is_sqlite, seal_key_file, sqlite_path
from holodeck.models.test_case import TestCase
from holodeck.models.tool import MCPTool
from holodeck.models.url import is_loopback

if TYPE_CHECKING:
    from holodeck.models.gateway import GatewayFile

_SETTINGS: KeyPath = ("test_settings",)
GatewayCheck = Callable[["GatewayFile", Source], Iterator[Problem]]
_STORAGE_URL: KeyPath = ("storage", "url")
_AUDIT_FILE: KeyPath = ("audit", "file")
_DATABASE_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})
"""Parameters of a `postgresql://` URL whose value is a file."""
_SYSTEM_CERTIFICATES = "system"
"""The value of `sslrootcert` that is not a file."""


def find_case_problems(agent: Agent, source: Source, *, has_model: bool) -> list[Problem]:
    """Return the problems of all test cases. `has_model`: the model of the file is not the one under test."""
    found: list[Problem] = []
    for index, case in enumerate(agent.test_cases):
        path: KeyPath = ("test_cases", index)
        found += _check_patterns(case, path, source)
        found += _check_json(case, path, source)
        found += _check_ground_truth(agent, case, path, source)
        found += _check_judge(agent, case, path, source, has_model=has_model)
    # A file-level key is the cause of the same problem in many cases.
    return list(dict.fromkeys(found))


def list_test_models(agent: Agent) -> Iterator[tuple[KeyPath, LLM]]:
    """Yield each model that only tests use, with its key path: those that judge, and those of `models`."""
    for name, model in agent.test_settings.models.items():
        yield (*_SETTINGS, "models", name), model
    if agent.test_settings.judge is not None:
        yield (*_SETTINGS, "judge"), agent.test_settings.judge
    for index, case in enumerate(agent.test_cases):
        own = case.judge_expectation
        if own is not None and own.model is not None:
            yield ("test_cases", index, "judge", "model"), own.model


def _check_patterns(case: TestCase, path: KeyPath, source: Source) -> Iterator[Problem]:
    if case.matches is None:
        return
    key: KeyPath = (*path, "matches")
    patterns = [(key, case.matches)] if isinstance(case.matches, str) else []
    patterns += [((*key, at), each) for at, each in enumerate(case.matches)] if not patterns else []
    for where, pattern in patterns:
        reason = _find_pattern_error(pattern)
        if reason is not None:
            # The reason may quote the pattern, and the value of a variable is never shown.
            shown = "" if isinstance(value_at(source.data, where), Substituted) else f": {reason}"
            yield problem_at(source.document, where, f"'matches' is not a regular expression{shown}")


def _find_pattern_error(pattern: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error) or type(error).__name__
    return None


def _check_json(case: TestCase, path: KeyPath, source: Source) -> Iterator[Problem]:
    expected = case.json_answer
    if expected is None:
        return
    if expected.answer_schema is not None:
        where = (*path, "json", "schema")
        try:
            check_schema(expected.answer_schema)
        except SchemaError as error:
            # As in `agent_loader`: the reason quotes the schema, which may have values of variables.
            is_as_written = value_at(source.document.value, where) == expected.answer_schema
            reason = str(error) if is_as_written else "this is not a JSON Schema that can be used"
            yield problem_at(source.document, where, reason)
    for text in expected.values:
        try:
            parse_json_path(text)
        except ValueError as error:
            yield problem_at(source.document, (*path, "json", "values", text), str(error))


def _check_ground_truth(agent: Agent, case: TestCase, path: KeyPath, source: Source) -> Iterator[Problem]:
    if case.ground_truth is None:
        if case.ground_truth_by is not None:
            message = "'ground_truth_by' has no meaning without 'ground_truth'"
            yield problem_at(source.document, (*path, "ground_truth_by"), message)
        return
    measure = agent.test_settings.measure_of(case)
    if measure == "json" and not _is_json(case.ground_truth):
        message = "'ground_truth' is not JSON, and is to be judged as JSON"
        yield problem_at(source.document, (*path, "ground_truth"), message, fix="Name another 'ground_truth_by'.")
    if measure == "number" and not any(char.isdigit() for char in case.ground_truth):
        message = "'ground_truth' is not a number, and is to be judged as one"
        yield problem_at(source.document, (*path, "ground_truth"), message, fix="Name another 'ground_truth_by'.")


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _check_judge(agent: Agent, case: TestCase, path: KeyPath, source: Source, *, has_model: bool) -> Iterator[Problem]:
    settings, own = agent.test_settings, case.judge_expectation
    is_truth_judged = case.ground_truth is not None and settings.measure_of(case) == "judge"
    if own is None and not is_truth_judged:
        return
    model = settings.judge_of(case)
    if model is None:
        asking = "judge" if own is not None else "ground_truth_by"
        at_case = own is not None or case.ground_truth_by is not None
        where = (*path, asking) if at_case else (*_SETTINGS, asking)
        fix = "Name it in 'judge.model' of the case, or in 'test_settings.judge' for all cases."
        yield problem_at(source.document, where, "no model is named that judges", fix=fix)
    elif not has_model and is_same_model(model, agent.model) and not (own is not None and own.allow_same_model):
        has_own_model = own is not None and own.model is not None
        where = (*path, "judge", "model") if has_own_model else (*_SETTINGS, "judge")
        message = "the judge is the model under test, which would judge itself"
        fix = "Name another model, or write 'allow_same_model: true' in 'judge' of the case."
        yield problem_at(source.document, where, message, fix=fix)


def agent_problems(agent: Agent, source: Source) -> list[Problem]:
    """Return the reasons why an agent cannot start on this machine."""
    models = [(("model",), agent.model), *list_test_models(agent)]
    return [problem for path, model in models for problem in _check_model(model, path, source)]


def gateway_problems(gateway: GatewayFile, source: Source) -> list[Problem]:
    """Return the reasons why a gateway cannot start on this machine. Its agents are checked with their own files."""
    return [problem for check in _GATEWAY_CHECKS for problem in check(gateway, source)]


def server_problems(tool: MCPTool, path: KeyPath, source: Source) -> list[Problem]:
    """Return the reasons why an MCP server cannot be used on this machine. `path` is its key path in the file."""
    auth = tool.auth
    if not tool.enabled or not isinstance(auth, OAuthClientCredentials):
        return []
    files = {"private_key_file": auth.private_key_file, "assertion_file": auth.assertion_file}
    return [
        problem
        for key, name in files.items()
        if name is not None
        for problem in _check_file(name, (*path, "auth", key), source, kind=MCPConfigError)
    ]


def _check_callers(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    if gateway.has_auth and gateway.auth == "none":
        message = "'auth: none' says that there is no authentication, and the file has 'keys' or 'jwt'"
        yield problem_at(source.document, ("auth",), message, fix="Remove 'auth', or remove the others.")
    if gateway.has_auth or is_loopback(gateway.listen.host):
        return
    host = quote_value(value_at(source.data, ("listen", "host")))
    message = f"without keys the gateway listens on loopback only, not on {host}"
    fix = "Make a key with 'holodeck keys create NAME', or set listen.host to 127.0.0.1."
    yield problem_at(source.document, ("listen", "host"), message, fix=fix)


def _check_client_login(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    has_login = gateway.jwt is not None and gateway.jwt.login is not None
    if gateway.mcp_endpoint.login is not None and not has_login:
        message = "MCP clients log in by the login of a person, and there is none"
        yield problem_at(source.document, ("mcp_endpoint", "login"), message, fix="Write 'jwt.login'.")


def _check_groups(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    names = [group.name for group in gateway.groups]
    for index, key in enumerate(gateway.keys):
        if key.group is not None and key.group not in names:
            close = closest_match(key.group, names)
            known = f"There are: {', '.join(names)}." if names else "Define it under 'groups'."
            fix = known if close is None else f"Did you mean '{close}'?"
            message = f"there is no group {quote_value(key.group)}"
            yield problem_at(source.document, ("keys", index, "group"), message, fix=fix)
    by_claim = None if gateway.jwt is None else gateway.jwt.allow_by_claim
    taken = set() if by_claim is None else set(by_claim.values)
    for index, group in enumerate(gateway.groups):
        path: KeyPath = ("groups", index, "claim_values")
        if group.claim_values and by_claim is None:
            message = "there is no claim whose values these are"
            yield problem_at(source.document, path, message, fix="Name it in 'jwt.allow_by_claim.claim'.")
        for place, value in enumerate(group.claim_values):
            if value in taken:
                message = f"{quote_value(value)} has its scope in another place already"
                fix = "Leave it in one group, or in 'jwt.allow_by_claim.values'."
                yield problem_at(source.document, (*path, place), message, fix=fix)
            taken.add(value)
    if by_claim is not None and not by_claim.values and not any(group.claim_values for group in gateway.groups):
        message = "no value of the claim has a scope, so no token may use anything by it"
        fix = "Write 'values: {VALUE: {...}}', or 'claim_values' of a group."
        yield problem_at(source.document, ("jwt", "allow_by_claim"), message, fix=fix)


def _check_models(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    for index, served in enumerate(gateway.models):
        yield from _check_model(served.model, ("models", index, "model"), source)


def _check_storage(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    url = gateway.storage.url
    if is_in_memory(url):
        return
    if is_sqlite(url):
        yield from _check_written_file(sqlite_path(url, source.folder), _STORAGE_URL, "the database file", source)
        return
    yield from _check_extra("postgres", "PostgreSQL storage", _STORAGE_URL, source)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # The text of this error quotes the URL, which has the password.
        message = "'storage.url' is not a postgresql://user:password@host:port/name"
        yield problem_at(source.document, _STORAGE_URL, message)
        return
    for name, value in parse_qsl(parts.query):
        if name in _DATABASE_FILES and value != _SYSTEM_CERTIFICATES:
            # For the driver, a relative path is relative to the working folder of the gateway.
            yield from _check_file(value, _STORAGE_URL, source, folder=Path(), shown_as=f"the file of '{name}'")


def _check_written_file(file: Path, path: KeyPath, subject: str, source: Source) -> Iterator[Problem]:
    """Check that a file can be created. `path`: the key that names it. `subject`: what it is, for messages."""
    # The value of a variable is never shown.
    is_shown = not isinstance(value_at(source.data, path), Substituted)
    folder = file.parent
    if not folder.is_dir():
        description = f"the folder '{folder}'" if is_shown else f"the folder of {subject}"
        argument = shlex.quote(str(folder)) if is_shown else "FOLDER"
        fix = f"Make it (mkdir -p {argument}), or name another file in '{'.'.join(map(str, path))}'."
        yield problem_at(source.document, path, f"{description} does not exist", fix=fix)
    elif file.exists() and not file.is_file():
        message = "this is not a file" if not is_shown else f"'{file}' is not a file"
        yield problem_at(source.document, path, message)


def _check_audit(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    if gateway.audit is not None and gateway.audit.file is not None:
        yield from _check_written_file(source.folder / gateway.audit.file, _AUDIT_FILE, "the audit log", source)


def _check_background(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    if gateway.background.durable is not True:
        return
    key: KeyPath = ("background", "durable")
    yield from _check_extra("durable", "'background.durable'", key, source)
    if is_in_memory(gateway.storage.url):
        message = "'background.durable' needs storage that outlives the process: not sqlite://:memory:"
        yield problem_at(source.document, key, message)


def _check_traces(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    if gateway.otel is not None:
        yield from _check_extra("otel", "'otel'", ("otel",), source)


def _check_key_set(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    """Check the file with the keys of an identity provider: without it, every caller would be refused as unknown."""
    name = gateway.jwt.jwks_file if gateway.jwt is not None else None
    if name is None:
        return
    key: KeyPath = ("jwt", "jwks_file")
    written = quote_value(value_at(source.data, key))
    try:
        value = parse_json(read_bytes(source.folder / name, name))
    except ConfigError as error:
        yield problem_at(source.document, key, f"cannot read {written}: {error.problems[0].message}")
        return
    except ValueError:
        yield problem_at(source.document, key, f"{written} is not JSON")
        return
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list) or not keys:
        yield problem_at(source.document, key, f"{written} is not a set of keys: it has no 'keys'")


def _check_seal_key(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    """Check the key file that a gateway has created for itself.

    An empty file, as after a crash of the machine, is no problem: the gateway creates the key again.
    """
    file = None if gateway.seal_key else seal_key_file(gateway.storage.url, source.folder)
    try:
        size = file.stat().st_size if file is not None else 0
    except OSError:
        return
    if 0 < size < MIN_SEAL_KEY_BYTES:
        message = f"the key beside the database has {size} bytes; a key that seals has at least {MIN_SEAL_KEY_BYTES}"
        fix = "Put it back from a copy, or remove it: a new one is made, and what the old one sealed cannot be opened."
        yield problem_at(source.document, _STORAGE_URL, message, fix=fix)


def _check_builtin_tools(gateway: GatewayFile, source: Source) -> Iterator[Problem]:
    known = [tool.name for tool in gateway.mcp_servers if isinstance(tool, MCPTool) and tool.enabled]
    for kind in type(gateway.builtin_tools).model_fields:
        target = gateway.builtin_tools.find_target(kind)
        if target is None or (target[0] in known and target[1]):
            continue
        message = f"there is no server {quote_value(target[0])} in 'mcp_servers'"
        fix = f"Write one of these before the dot: {', '.join(known)}." if known else "Add the server there."
        if not target[1]:
            message, fix = f"'{kind}' must name a server and its tool", "Write it as server.tool."
        yield problem_at(source.document, ("builtin_tools", kind), message, fix=fix)


_GATEWAY_CHECKS: Sequence[GatewayCheck] = (
    _check_callers,
    _check_groups,
    _check_client_login,
    _check_models,
    _check_storage,
    _check_audit,
    _check_background,
    _check_traces,
    _check_key_set,
    _check_seal_key,
    _check_builtin_tools,
)


def _check_model(model: LLM, path: KeyPath, source: Source) -> Iterator[Problem]:
    if model.provider is Provider.LOCAL:
        yield from _check_extra("local", "provider 'local'", (*path, "provider"), source)
    for index, stand_in in enumerate(model.fallback):
        yield from _check_model(stand_in, (*path, "fallback", index), source)


def _check_extra(extra: Extra, subject: str, path: KeyPath, source: Source) -> Iterator[Problem]:
    if not is_installed(extra):
        message = f"{subject} needs an extra that is not installed"
        yield problem_at(source.document, path, message, fix=f"Run: {install_hint(extra)}")


def _check_file(
    name: str,
    path: KeyPath,
    source: Source,
    *,
    folder: Path | None = None,
    shown_as: str = "",
    kind: type[ConfigError] | None = None,
) -> Iterator[Problem]:
    try:
        read_bytes((source.folder if folder is None else folder) / name, name)
    except ConfigError as error:
        written = shown_as or quote_value(value_at(source.data, path))
        message = f"cannot read {written}: {error.problems[0].message}"
        yield problem_at(source.document, path, message, kind=kind)
