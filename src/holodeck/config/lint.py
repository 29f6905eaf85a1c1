"""Warnings about configuration that is valid but probably a mistake, each with a fix.

Two findings are errors: a provider's key from the environment that would be sent without encryption, and a budget for a
model without a price.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from holodeck.config.known_keys import closest_match
from holodeck.config.problems import problem_at, value_at
from holodeck.config.source import Source
from holodeck.config.yaml_reader import KeyPath
from holodeck.lib.errors import Problem
from holodeck.lib.record import record
from holodeck.lib.redaction import ends_in_secret_word, is_secret_name
from holodeck.models.callers import Scope, is_split, split_pattern, split_tool_pattern
from holodeck.models.file_model import Substituted, as_written, quote_value
from holodeck.models.llm import LLM, is_own_host
from holodeck.models.price import Price
from holodeck.models.provider import PROVIDER_SPECS, Provider
from holodeck.models.tool_rules import is_legacy_npm
from holodeck.models.url import ALLOW_INSECURE, CLEARTEXT_KEY, BadURLError, is_sent_in_cleartext, parse_endpoint

# The commands for agents do not need the models of a gateway, whose import is slow.
if TYPE_CHECKING:
    from holodeck.config.agent_loader import LoadedAgent
    from holodeck.models.gateway import GatewayFile


def model_warnings(source: Source, environ: Mapping[str, str]) -> list[Problem]:
    """Return the problems of the models of an agent file: warnings, and those of `environment_key_problems`."""
    found = _find_model_problems(source, ("model",), environ, "the agent cannot ask its model")
    found += _find_model_problems(source, ("test_settings", "judge"), environ, "the judge cannot be asked")
    models = value_at(source.data, ("test_settings", "models"))
    for name in models if isinstance(models, dict) else ():
        found += _find_model_problems(source, ("test_settings", "models", name), environ, "it cannot be tested")
    cases = source.data.get("test_cases")
    for index in range(len(cases) if isinstance(cases, list) else 0):
        path = ("test_cases", index, "judge", "model")
        found += _find_model_problems(source, path, environ, "the judge cannot be asked")
    return found


def _find_model_problems(source: Source, path: KeyPath, environ: Mapping[str, str], effect: str) -> list[Problem]:
    """Return problems of the model at this path; none if there is none. `effect`: of a key that is missing."""
    model = value_at(source.data, path)
    if not isinstance(model, dict):
        return []
    found = []
    if _is_literal_value(model.get("api_key")):
        found.append(_literal_secret_warning(source, (*path, "api_key"), "api_key"))
    found += environment_key_problems(source, model, path, environ)
    provider = _provider_of(model)
    variable = PROVIDER_SPECS[provider].key_variable if provider else None
    is_sent_to_endpoint = provider is not None and _is_own_host(provider, model)
    if (
        variable
        and is_sent_to_endpoint
        and not model.get("api_key")
        and not model.get("deployments")
        and not environ.get(variable)
    ):
        message = f"there is no 'api_key', and {variable} is not set: {effect}"
        fix = f"Set {variable}, or write 'api_key: ${{{variable}}}'."
        found.append(problem_at(source.document, path, message, fix=fix, severity="warning"))
    return found


def environment_key_problems(
    source: Source, model: Mapping[str, Any], path: KeyPath, environ: Mapping[str, str]
) -> list[Problem]:
    """Return problems of the API key in the provider's environment variable, for a model without `api_key`.

    An error when the key would be sent without encryption, a warning when it is not sent, because the endpoint is not
    the provider's own.
    """
    provider, endpoint = _provider_of(model), model.get("endpoint")
    variable = PROVIDER_SPECS[provider].key_variable if provider else None
    # A key in the file is checked by the rules of the model itself.
    if provider is None or model.get("api_key") or not environ.get(variable or "") or not isinstance(endpoint, str):
        return []
    if not _is_own_host(provider, model):
        message = f"the key in {variable} is not sent to this endpoint, which is not one of {provider}'s own"
        fix = f"If it should get the key, write 'api_key: ${{{variable}}}' beside it."
        return [problem_at(source.document, (*path, "endpoint"), message, fix=fix, severity="warning")]
    if not is_sent_in_cleartext(endpoint, model.get("allow_insecure_hosts")):
        return []
    message = CLEARTEXT_KEY.replace("the key", f"the key in {variable}")
    return [problem_at(source.document, (*path, "endpoint"), message, fix=ALLOW_INSECURE)]


def _provider_of(model: Mapping[str, Any]) -> Provider | None:
    return next((provider for provider in PROVIDER_SPECS if provider == model.get("provider")), None)


def _is_own_host(provider: Provider, model: Mapping[str, Any]) -> bool:
    endpoint = model.get("endpoint")
    return is_own_host(PROVIDER_SPECS[provider], endpoint if isinstance(endpoint, str) else None)


def tool_warnings(source: Source, tool: Mapping[str, Any], path: KeyPath) -> list[Problem]:
    """Return the warnings about one MCP server."""
    return [
        *_check_legacy_npm(source, tool, path),
        *_check_plain_websocket(source, tool, path),
        *_check_literal_secrets(source, tool, path),
        *_check_secret_arguments(source, tool, path),
    ]


def _check_legacy_npm(source: Source, tool: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    if is_legacy_npm(tool):
        message = "a server without 'command' is deprecated: it is started with npx"
        yield problem_at(source.document, path, message, fix="Add 'command: npx'.", severity="warning")


def _check_plain_websocket(source: Source, tool: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    url = tool.get("url")
    if not isinstance(url, str):
        return
    try:
        endpoint = parse_endpoint(url)
    except BadURLError:
        return
    if endpoint.scheme == "ws" and not endpoint.is_loopback:
        message = "ws:// sends everything in the clear"
        yield problem_at(source.document, (*path, "url"), message, fix="Use wss://.", severity="warning")


def _check_literal_secrets(source: Source, tool: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    for key in ("env", "headers", "auth"):
        values = tool.get(key)
        for name, value in values.items() if isinstance(values, dict) else ():
            if ends_in_secret_word(name) and _is_literal_value(value):
                yield _literal_secret_warning(source, (*path, key, name), name)


def _check_secret_arguments(source: Source, tool: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    """Warn about arguments with a variable where the variable or the option is named like a secret.

    Such as `--api-key ${KEY}` and `--key=${K}`.
    """
    args = tool.get("args")
    previous_option = ""
    for index, arg in enumerate(args if isinstance(args, list) else ()):
        written = as_written(arg)
        names = re.findall(r"\$\{(?:env:|input:)?([^}:]*)", written) if isinstance(arg, Substituted) else []
        option = written.partition("=")[0] if written.startswith("-") else previous_option
        if names and (any(map(is_secret_name, names)) or is_secret_name(option)):
            message = "this argument holds a secret, and everybody on this machine sees arguments in the process list"
            fix = "Give it to the server as a variable in 'env', if it takes one."
            yield problem_at(source.document, (*path, "args", index), message, fix=fix, severity="warning")
        previous_option = written if written.startswith("-") else ""


def _is_literal_value(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not isinstance(value, Substituted) and "${" not in value


def _literal_secret_warning(source: Source, path: KeyPath, name: str) -> Problem:
    variable = re.sub(r"[^A-Za-z0-9]+", "_", name).upper()
    message = "this looks like a secret written into the file"
    fix = f"Move it to the environment or a .env file, and write ${{{variable}}} here."
    return problem_at(source.document, path, message, fix=fix, severity="warning")


@record
class _Configured:
    """The names that patterns can match, by the list that they are in."""

    models: Collection[str]
    agents: Collection[str]
    servers: Collection[str]


def find_unmatched_patterns(
    gateway: GatewayFile, agents: Mapping[str, LoadedAgent], source: Source
) -> Iterator[Problem]:
    """Yield a warning for each pattern of a scope, of a key or of `jwt`, that matches nothing that the file has.

    A pattern that allows nothing locks its caller out, and one that denies nothing lets it in.
    """
    servers = [tool.name for tool in gateway.mcp_servers]
    servers += [tool.name for loaded in agents.values() for each in loaded.list_all() for tool in each.agent.tools]
    configured = _Configured(models=[model.name for model in gateway.models], agents=agents, servers=servers)
    for path, scope in _list_scopes(gateway):
        for key, patterns in scope:
            # Patterns for servers also match the labels of servers that requests declare.
            are_labels_unknown = (key == "servers" or is_split(key)) and gateway.request_servers.allow
            for index, pattern in enumerate(patterns or ()):
                if are_labels_unknown and not split_pattern(pattern)[0]:
                    continue
                yield from _check_pattern(key, pattern, (*path, key, index), configured, source)


def _list_scopes(gateway: GatewayFile) -> Iterator[tuple[KeyPath, Scope]]:
    for index, key in enumerate(gateway.keys):
        if key.allow is not None:
            yield ("keys", index, "allow"), key.allow
    for index, group in enumerate(gateway.groups):
        if group.allow is not None:
            yield ("groups", index, "allow"), group.allow
    if gateway.jwt is not None and gateway.jwt.allow is not None:
        yield ("jwt", "allow"), gateway.jwt.allow
    if gateway.jwt is not None and gateway.jwt.allow_by_claim is not None:
        for value, scope in gateway.jwt.allow_by_claim.values.items():
            yield ("jwt", "allow_by_claim", "values", value), scope


def _check_pattern(key: str, pattern: str, path: KeyPath, configured: _Configured, source: Source) -> Iterator[Problem]:
    denies, glob = split_pattern(pattern)
    kind = "servers" if is_split(key) else key
    name = split_tool_pattern(glob)[0] if is_split(key) else glob
    names: Collection[str] = getattr(configured, kind)
    if name == "*" or any(fnmatchcase(each, name) for each in names):
        return
    noun = {"models": "model", "agents": "agent", "servers": "MCP server"}[kind]
    effect = "denies" if denies else "allows"
    close = closest_match(name, names)
    fix = f"Did you mean '{close}'?" if close is not None else _describe_names(noun, names)
    message = f"{quote_value(pattern)} {effect} nothing: no {noun} of this file matches {quote_value(name)}"
    yield problem_at(source.document, path, message, fix=fix, severity="warning")


def _describe_names(noun: str, names: Collection[str]) -> str:
    return f"There are: {', '.join(dict.fromkeys(names))}." if names else f"The file has no {noun}."


def find_unpriced_models(gateway: GatewayFile, agents: Mapping[str, LoadedAgent], source: Source) -> Iterator[Problem]:
    """Yield a problem for each budget whose caller may use a model without a price. `agents`: by public name."""
    for path, scopes, within in _list_budgets(gateway):
        message, fix = describe_unpriced_models(gateway, agents, scopes, within=within)
        if message:
            yield problem_at(source.document, path, message, fix=fix)


def describe_unpriced_models(
    gateway: GatewayFile,
    agents: Mapping[str, LoadedAgent],
    scopes: Sequence[Scope] | None,
    *,
    within: Scope | None = None,
) -> tuple[str, str]:
    """Return what hinders a budget of callers with these scopes, and what to do. Empty: nothing does.

    `scopes`: None if some of them may use everything. `agents`: by public name. `within`: the scope of their group.
    """
    models = {served.name for served in gateway.models if None in _list_prices(served.model)}
    unpriced_agents = {
        name
        for name, loaded in agents.items()
        if any(None in _list_prices(each.agent.model) for each in loaded.list_all())
    }
    group = None if within is None else [within]
    found = {name for name in models if _may_use(scopes, "models", name) and _may_use(group, "models", name)}
    found |= {name for name in unpriced_agents if _may_use(scopes, "agents", name) and _may_use(group, "agents", name)}
    if gateway.compaction.model in (*models, *unpriced_agents):
        # Summaries are written by it, whatever the caller may use itself.
        found.add(str(gateway.compaction.model))
    if not found:
        return "", ""
    listed = ", ".join(f"'{name}'" for name in sorted(found))
    verb = "has" if len(found) == 1 else "have"
    message = f"a budget needs the price of every model that its caller may use, and {listed} {verb} none"
    fix = "Add 'price: {input: ..., output: ...}' to the model, 0 if it costs nothing, or leave it out of 'allow'."
    return message, fix


def _list_prices(llm: LLM) -> list[Price | None]:
    return [llm.prices.usual, *llm.prices.stand_ins.values()]


def _list_budgets(gateway: GatewayFile) -> Iterator[tuple[KeyPath, Sequence[Scope] | None, Scope | None]]:
    """Yield each budget of the file, with the scopes of its callers, and that of their group.

    None: some may use everything.
    """
    groups = {group.name: group.allow for group in gateway.groups}
    for index, key in enumerate(gateway.keys):
        if key.budget is not None:
            yield ("keys", index, "budget"), None if key.allow is None else [key.allow], groups.get(key.group or "")
    for index, group in enumerate(gateway.groups):
        if group.budget is not None:
            yield ("groups", index, "budget"), None if group.allow is None else [group.allow], None
    if gateway.limits.key_budget is None:
        return
    path: KeyPath = ("limits", "key_budget")
    keys = [key for key in gateway.keys if key.budget is None]
    # What tokens may use depends on their claims, and without authentication everything is allowed.
    has_other_callers = gateway.jwt is not None or not gateway.keys
    scopes = [key.allow for key in keys if key.allow is not None]
    yield path, None if has_other_callers or len(scopes) < len(keys) else scopes, None


def _may_use(scopes: Sequence[Scope] | None, kind: str, name: str) -> bool:
    return scopes is None or any(_allows(getattr(scope, kind), name) for scope in scopes)


def _allows(patterns: Collection[str] | None, name: str) -> bool:
    """Return whether a list of a scope allows a name: see `Scope`."""
    if patterns is None:
        return True
    split = [split_pattern(pattern) for pattern in patterns]
    if any(denies and fnmatchcase(name, glob) for denies, glob in split):
        return False
    allowed = [glob for denies, glob in split if not denies]
    has_only_denials = bool(split) and not allowed
    return has_only_denials or any(fnmatchcase(name, glob) for glob in allowed)
