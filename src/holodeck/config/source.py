"""A configuration file with its references to variables and to models resolved.

A variable is looked up in the environment of the process first, then in the `envFile` of the tool that refers to it,
then in the `.env` file beside the configuration file.

A model can be defined once and named elsewhere: `use: fast` in a `model` section, or `fast` in its place or in its
`fallback`. The name is looked up among the `models` of the gateway's file, for that file and for the agents that it
serves, and then among those of the user's own settings. A text that is none of these names is `provider:name`. It is
replaced by what it means in the values of the file and in the form in which the file is shown, so that checks and trust
see where a name leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holodeck.config.env_loader import load_env_file
from holodeck.config.files import record_path
from holodeck.config.interpolation import Vocabulary, chain_lookups, resolve, substitute
from holodeck.config.known_keys import closest_match
from holodeck.config.problems import problem_at, value_at
from holodeck.config.yaml_reader import Document, KeyPath, parse_document, read_document
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.record import record
from holodeck.lib.redaction import is_inert_secret
from holodeck.models.file_model import Substituted, as_written, quote_value
from holodeck.models.llm import OPTION_KEYS
from holodeck.models.provider import PROVIDER_SPECS, find_provider
from holodeck.models.tool_rules import USER_SETTINGS

# Beside 'use': what changes the answers, and not where the request and its key go.
_BESIDE_USE = frozenset({"use", "fallback", *OPTION_KEYS})


@record
class FileRead:
    """A file that was read for another one, and what was taken from it."""

    path: str
    """As written in the file that names it."""
    sha256: str = ""
    """Hash of the file; empty for one of variables."""
    is_inside: bool = False
    """Whether it is in the folder of the file that names it."""
    variables: tuple[tuple[str, str], ...] = ()
    """The variables that were taken from a `.env` file, sorted, each with its value, without secrets."""


@record
class Source:
    """A file: `document` is as written, `data` has its references replaced."""

    path: Path
    document: Document
    data: dict[str, Any]
    problems: tuple[Problem, ...]
    env_files: Mapping[KeyPath, Mapping[str, str]]
    """The variables of the `envFile` of each tool, by the key path of the tool."""
    reads: tuple[FileRead, ...] = ()
    """The `.env` files that values were taken from, without values that only keys of the file get which do not act."""

    @property
    def folder(self) -> Path:
        return self.path.parent


def read_source(
    path: Path,
    shown_as: str,
    environ: Mapping[str, str],
    *,
    tools_key: str,
    inert_keys: Collection[str] = (),
    text: str | None = None,
) -> Source:
    """Read a file and resolve its references. Raises `ConfigError` when it is not a YAML mapping.

    `tools_key` is the key of its list of tools, whose entries may have an `envFile`. `inert_keys`: see `Source.reads`.
    `text`: taken in place of what the file has, which is not read then.
    """
    document = read_document(path, shown_as) if text is None else parse_document(text, shown_as)
    if document.value is None:
        raise ConfigError.of([Problem(message="the file is empty", file=shown_as)])
    if not isinstance(document.value, dict):
        raise ConfigError.of(
            [problem_at(document, (), "the file must be a mapping (key: value), not a list or a text")]
        )
    path = path.absolute()
    fixed_values = {"workspaceFolder": str(path.parent), "userHome": str(Path.home())}
    return resolve_document(
        document,
        path,
        environ,
        tools_key=tools_key,
        vocabulary=Vocabulary(fixed_values=fixed_values),
        inert_keys=inert_keys,
    )


def resolve_document(
    document: Document,
    path: Path,
    environ: Mapping[str, str],
    *,
    tools_key: str,
    vocabulary: Vocabulary,
    inert_keys: Collection[str] = (),
) -> Source:
    """Resolve the references of a document that is a mapping. `path` is the absolute path of its file."""
    resolver = _VariableResolver(document, path.parent, environ, vocabulary)
    data = resolver.resolve_document(tools_key)
    return Source(
        path=path,
        document=document,
        data=data,
        problems=(*document.problems, *resolver.problems),
        env_files=resolver.env_files,
        reads=tuple(resolver.reads(inert_keys)),
    )


class _VariableResolver:
    def __init__(self, document: Document, folder: Path, environ: Mapping[str, str], vocabulary: Vocabulary) -> None:
        self._document = document
        self._folder = folder
        self._vocabulary = vocabulary
        self.problems: list[Problem] = []
        self.env_files: dict[KeyPath, Mapping[str, str]] = {}
        self._sources: list[Mapping[str, str]] = [environ]
        self._named_env_files: dict[str, Mapping[str, str]] = {}
        beside = folder / ".env"
        record_path(beside)
        if beside.is_file():
            self._sources.append(self._load_env_file(beside, ".env", None))

    def resolve_document(self, tools_key: str) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in self._document.value.items():
            if key == tools_key and isinstance(value, list):
                data[key] = [self._resolve_tool(tool, (key, index)) for index, tool in enumerate(value)]
            else:
                data[key] = self._resolve(value, (key,), self._sources)
        return data

    def reads(self, inert_keys: Collection[str]) -> Iterator[FileRead]:
        """Yield the `.env` files, with what the document takes from each, also where the environment takes precedence.

        Secrets are left out, by the name of every key that gets them and by their form (`is_inert_secret`): a new token
        does nothing else than the old one. What only `inert_keys` of the document get is left out as well.
        """
        document = {key: value for key, value in self._document.value.items() if key not in inert_keys}
        references = list(_find_references("", document))
        beside = {name: value for values in self._sources[1:] for name, value in values.items()}
        yield from _read_variables(".env", beside, references)
        for written, values in self._named_env_files.items():
            # The server gets all of them, each by its own name.
            yield from _read_variables(written, values, [*references, *((name, name) for name in values)])

    def _resolve_tool(self, tool: Any, path: KeyPath) -> Any:
        sources = self._sources
        for key in ("envFile", "env_file"):
            written = tool.get(key) if isinstance(tool, dict) else None
            if isinstance(written, str) and written.strip():
                name = str(self._resolve(written, (*path, key), self._sources, quiet=True))
                loaded = self._load_env_file(self._folder / Path(name).expanduser(), written, (*path, key))
                self.env_files[path] = loaded
                self._named_env_files[written] = loaded
                sources = [self._sources[0], loaded, *self._sources[1:]]
        resolved = self._resolve(tool, path, sources)
        if isinstance(resolved, dict):
            for key in ("env", "headers"):
                resolved = self._stringify_values(resolved, key, path)
        return resolved

    def _resolve(self, value: Any, path: KeyPath, sources: list[Mapping[str, str]], *, quiet: bool = False) -> Any:
        resolved, problems = resolve(value, path, self._document, chain_lookups(sources), self._vocabulary)
        if not quiet:
            self.problems += problems
        return resolved

    def _stringify_values(self, tool: dict[str, Any], key: str, path: KeyPath) -> dict[str, Any]:
        """Convert scalars of `env` and `headers` to text as written: `1.10` stays `1.10`."""
        values = tool.get(key)
        if not isinstance(values, dict):
            return tool
        texts = self._document.texts
        converted = {
            name: texts.get((*path, key, name), str(value)) if isinstance(value, (bool, int, float)) else value
            for name, value in values.items()
        }
        return {**tool, key: converted}

    def _load_env_file(self, path: Path, written: str, key: KeyPath | None) -> Mapping[str, str]:
        try:
            return load_env_file(path)
        except ConfigError as error:
            for problem in error.problems:
                # A problem with a line is about the contents of the `.env` file, others about the key that names it.
                if problem.line is not None or key is None:
                    self.problems.append(problem)
                else:
                    self.problems.append(
                        problem_at(self._document, key, f"cannot read '{written}': {problem.message}", fix=problem.fix)
                    )
            return {}


def _read_variables(
    written: str, values: Mapping[str, str], references: Collection[tuple[str, str]]
) -> Iterator[FileRead]:
    """Yield what keys get from a `.env` file. `references`: each key with the name of a variable that it gets."""
    taken = {
        name: values[name] for key, name in references if name in values and not is_inert_secret(key, values[name])
    }
    if taken:
        yield FileRead(path=written, variables=tuple(sorted(taken.items())))


def _find_references(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield each variable in the texts of a value, after the key that gets it."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _find_references(str(name), item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_references(key, item)
    elif isinstance(value, str) and "${" in value:
        names: list[str] = []
        # The lookup gets the names and finds nothing.
        substitute(value, names.append, {})
        yield from ((key, name) for name in names)


@record
class ModelDefinition:
    """A model as a file defines it: with its values, and as written."""

    data: Mapping[str, Any]
    written: Mapping[str, Any]


def list_definitions(source: Source) -> dict[str, ModelDefinition]:
    """Return the models that a file defines under `models`, by their names. Those that use another one are left out."""
    entries, written = source.data.get("models"), source.document.value.get("models")
    if not isinstance(entries, list) or not isinstance(written, list):
        return {}
    shown = {entry.get("name"): entry.get("model") for entry in written if isinstance(entry, dict)}
    found: dict[str, ModelDefinition] = {}
    for entry in entries:
        name, model = (entry.get("name"), entry.get("model")) if isinstance(entry, dict) else (None, None)
        as_shown = shown.get(name)
        if isinstance(model, str):
            model, as_shown = _read_model_text(model)
        if isinstance(name, str) and isinstance(model, dict) and "use" not in model:
            found[name] = ModelDefinition(data=model, written=as_shown if isinstance(as_shown, dict) else {})
    return found


def list_model_paths(source: Source) -> list[KeyPath]:
    """Return the key paths of the models that a file defines under `models`."""
    entries = source.data.get("models")
    return [("models", index, "model") for index in range(len(entries) if isinstance(entries, list) else 0)]


def list_agent_model_paths(source: Source) -> list[KeyPath]:
    """Return the key paths of the models of an agent file: its own, and those that only tests use."""
    settings, cases = source.data.get("test_settings"), source.data.get("test_cases")
    named = settings.get("models") if isinstance(settings, dict) else None
    return [
        ("model",),
        ("test_settings", "judge"),
        *(("test_settings", "models", name) for name in (named if isinstance(named, dict) else ())),
        *(("test_cases", at, "judge", "model") for at in range(len(cases) if isinstance(cases, list) else 0)),
    ]


def resolve_models(source: Source, paths: Iterable[KeyPath], definitions: Mapping[str, ModelDefinition]) -> Source:
    """Return the file with the names of models at these paths replaced. Unknown names are among its problems."""
    resolver = _NameResolver(source, definitions)
    data, written = source.data, source.document.value
    for path in paths:
        model = value_at(data, path)
        as_shown = value_at(written, path)
        if isinstance(model, str) and model.strip():
            model, as_shown = resolver.read_text(model, path)
            data, written = _with_value(data, path, model), _with_value(written, path, as_shown)
        if isinstance(model, dict) and ("use" in model or "fallback" in model):
            new, shown = resolver.resolve(model, as_shown if isinstance(as_shown, dict) else {}, path)
            data, written = _with_value(data, path, new), _with_value(written, path, shown)
    if data is source.data:
        return source
    problems = (*source.problems, *resolver.problems)
    return replace(source, data=data, document=replace(source.document, value=written), problems=problems)


class _NameResolver:
    def __init__(self, source: Source, definitions: Mapping[str, ModelDefinition]) -> None:
        self._source = source
        self._definitions = definitions
        self.problems: list[Problem] = []

    def resolve(
        self, model: Mapping[str, Any], written: Mapping[str, Any], path: KeyPath
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a model without names, its values and as shown."""
        data, shown = self._resolve_use(model, written, path)
        listed, shown_list = data.get("fallback"), shown.get("fallback")
        if isinstance(listed, list):
            stand_ins = []
            for index, entry in enumerate(listed):
                as_shown = shown_list[index] if isinstance(shown_list, list) and index < len(shown_list) else None
                stand_ins.append(self._resolve_stand_in(entry, as_shown, (*path, "fallback", index)))
            data["fallback"] = [new for new, _ in stand_ins if new is not None]
            shown["fallback"] = [each for new, each in stand_ins if new is not None]
        return data, shown

    def read_text(self, text: str, path: KeyPath) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the section that a text stands for, its values and as shown."""
        if text in self._definitions:
            return {"use": text}, {"use": as_written(text)}
        data, shown = _read_model_text(text)
        if data is None or shown is None:
            message, fix = explain_unknown_model(text, self._definitions)
            self.problems.append(problem_at(self._source.document, path, message, fix=fix))
            return {"provider": "rehearsal"}, {}
        return data, shown

    def _resolve_stand_in(self, entry: Any, written: Any, path: KeyPath) -> tuple[Any, Any]:
        """Return a stand-in without names. It has no stand-ins of its own. None: its name is unknown."""
        if isinstance(entry, str):
            before = len(self.problems)
            entry, written = self.read_text(entry, path)
            if len(self.problems) > before:
                return None, None
        if not isinstance(entry, dict) or "use" not in entry:
            return entry, written
        before = len(self.problems)
        data, shown = self._resolve_use(entry, written if isinstance(written, dict) else {}, path)
        if len(self.problems) > before:
            return None, None
        for each in (data, shown):
            each.pop("fallback", None)
        return data, shown

    def _resolve_use(
        self, model: Mapping[str, Any], written: Mapping[str, Any], path: KeyPath
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if "use" not in model:
            return dict(model), dict(written)
        name = model["use"]
        definition = self._definitions.get(name) if isinstance(name, str) else None
        foreign = [key for key in model if key not in _BESIDE_USE]
        if definition is None:
            self._report_unknown(name, path)
        elif foreign:
            message = f"'{foreign[0]}' cannot stand beside 'use', which names a model that is defined elsewhere"
            fix = "Write it where the model is defined, or write the whole model here."
            self.problems.append(problem_at(self._source.document, (*path, foreign[0]), message, fix=fix))
        if definition is None or foreign:
            return {"provider": "rehearsal"}, {}
        default = {"provider": "rehearsal"}
        return {**default, **definition.data, **model}, {**default, **definition.written, **written}

    def _report_unknown(self, name: object, path: KeyPath) -> None:
        message = f"there is no model {quote_value(name)}"
        close = closest_match(name, self._definitions) if isinstance(name, str) else None
        known = ", ".join(sorted(self._definitions))
        fix = f"Did you mean '{close}'?" if close else f"There are: {known}." if known else ""
        where = f"Models are defined under 'models', in {USER_SETTINGS} or in the file of the gateway."
        self.problems.append(problem_at(self._source.document, path, message, fix=f"{fix} {where}".strip()))


def _read_model_text(text: str) -> tuple[dict[str, Any], dict[str, Any]] | tuple[None, None]:
    """Return the section that `provider:name` stands for, its values and as shown; None if it names no provider."""
    found = parse_model_name(text)
    if found is None or not isinstance(text, Substituted):
        return (None, None) if found is None else (found, dict(found))
    # The value of a variable is not shown.
    return {key: Substituted(value, text.written) for key, value in found.items()}, dict.fromkeys(found, text.written)


def parse_model_name(text: str) -> dict[str, Any] | None:
    """Return `provider:name`, or the name of a provider alone, as a `model` section; None if it names no provider."""
    provider, _, name = (part.strip() for part in text.partition(":"))
    if provider not in set(PROVIDER_SPECS):
        return None
    return {"provider": provider, **({"name": name} if name else {})}


def explain_unknown_model(text: str, names: Collection[str] = ()) -> tuple[str, str]:
    """Return what is wrong with a text that names no model, and what to write. `names`: those that are defined."""
    provider, _, name = text.partition(":")
    known = [str(each) for each in PROVIDER_SPECS]
    close, provider = closest_match(text, names), find_provider(provider) or closest_match(provider, known) or ""
    if close is None and provider and name:
        close = f"{provider}:{name}"
    hint = f"Did you mean '{close}'?" if close else f"Providers: {', '.join(known)}."
    if names and not close:
        hint += f" Models of yours: {', '.join(sorted(names))}."
    return f"{quote_value(text)} names no model: write 'provider:name', such as 'openai:gpt-5-mini'", hint


def _with_value(container: Any, path: KeyPath, value: Any) -> Any:
    """Return a copy of a container with another value at a path. One that does not have the path is returned as is."""
    if not path:
        return value
    first, *rest = path
    if isinstance(container, dict):
        return {**container, first: _with_value(container.get(first), tuple(rest), value)}
    if isinstance(container, list) and isinstance(first, int) and first < len(container):
        return [_with_value(each, tuple(rest), value) if n == first else each for n, each in enumerate(container)]
    return container
