"""Server entries of ours, said in the form of another program.

`write_entry` translates the keys that the program's `EntryForm` has, and names every key that it cannot say. Variables
stay references: in the syntax of the program, by name where it has a list of names, and otherwise as `${NAME}` with a
note that the value has to be filled in. Values of variables are never looked up.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holodeck.config.interpolation import map_references
from holodeck.config.mcp_json.literal_secrets import replace_secrets
from holodeck.config.mcp_json.programs import EntryForm, Program
from holodeck.lib.record import record
from holodeck.lib.redaction import mask_arguments, mask_url
from holodeck.models.tool import DEFAULT_ARGS, CommandType
from holodeck.models.transport import TransportType

# Keys that every form says in its own way, or that say nothing beside the others.
_HANDLED = frozenset(
    {"type", "name", "server", "transport", "command", "args", "env", "env_file", "envFile", "url", "headers", "auth"}
    | {"enabled", "allowed_tools", "denied_tools", "approval", "request_timeout", "startup_timeout", "cwd"}
)
_GLOB = frozenset("*?[")


@record
class Loss:
    """Something that a program cannot say, or does not do by itself."""

    server: str
    key: str
    reason: str


@record
class WrittenEntry:
    """An entry for a program. `value` is None for a server that the program cannot use at all."""

    name: str
    value: dict[str, Any] | None
    lost: tuple[Loss, ...] = ()
    variables: tuple[str, ...] = ()
    """Names that the environment of the program has to have."""


def write_entry(written: Mapping[str, Any], program: Program, folder: Path) -> WrittenEntry:
    """Translate a server entry, as written in a file of ours in `folder`, into an entry of the program."""
    return _EntryWriter(written, program, folder).write()


class _EntryWriter:
    def __init__(self, written: Mapping[str, Any], program: Program, folder: Path) -> None:
        self._written, self._secrets = replace_secrets(written)
        self._program = program
        self._form: EntryForm = program.form
        self._folder = folder
        self._name = str(written.get("name") or "server")
        self._value: dict[str, Any] = {}
        self._lost: list[Loss] = []
        self._variables: dict[str, None] = {}

    def write(self) -> WrittenEntry:
        for secret in self._secrets:
            self._lose(secret.key, f"a secret is written into the file: {secret.variable} is used in its place")
        form, transport = self._form, str(self._written.get("transport") or TransportType.STDIO)
        self._value = dict(form.constants)
        if form.name_key:
            self._value[form.name_key] = self._name
        if transport == TransportType.STDIO:
            self._write_process()
        elif transport in form.urls:
            self._write_remote(*form.urls[transport])
            if transport != TransportType.HTTP and form.urls[transport] == form.urls.get(TransportType.HTTP):
                self._lose("transport", "it finds out by itself which transport the server has")
        else:
            reason = f"{self._program.label} cannot use servers over {transport} from its file"
            self._lose("transport", reason)
            return WrittenEntry(name=self._name, value=None, lost=tuple(self._lost))
        self._write_settings()
        self._write_permissions()
        self._name_other_keys()
        return WrittenEntry(
            name=self._name, value=self._value, lost=tuple(self._lost), variables=tuple(self._variables)
        )

    def _write_process(self) -> None:
        form, written = self._form, self._written
        if form.stdio_type:
            self._value["type"] = form.stdio_type
        command = str(written.get("command") or CommandType.NPX)
        self._value[form.command_key] = self._translate_text("command", command)
        args = [str(arg) for arg in written.get("args") or ()]
        if not args and command in DEFAULT_ARGS:
            args = [*DEFAULT_ARGS[command], *([str(written["server"])] if written.get("server") else [])]
        env = {str(name): value for name, value in (written.get("env") or {}).items()}
        if command == CommandType.DOCKER:
            args = _forward_variables(args, list(env))
        self._value["args"] = [self._translate_text(f"args[{index}]", arg) for index, arg in enumerate(args)]
        self._write_environment(env)
        self._write_folder(args)

    def _write_environment(self, env: Mapping[str, Any]) -> None:
        form = self._form
        named = [name for name, value in env.items() if form.env_names_key and value == f"${{{name}}}"]
        rest = {
            name: self._translate_text(f"env.{name}", str(value)) for name, value in env.items() if name not in named
        }
        if rest:
            self._value[form.env_key] = rest
        if named:
            self._value[form.env_names_key] = named
            self._variables |= dict.fromkeys(named)
        env_file = self._written.get("env_file") or self._written.get("envFile")
        if env_file and "env_file" in form.copied:
            self._value[form.copied["env_file"]] = str(self._folder / Path(str(env_file)).expanduser())
        elif env_file:
            self._lose("env_file", "the variables of the file are not read")

    def _write_folder(self, args: list[str]) -> None:
        """Write the working folder where it matters: it is named, or an argument is relative to it."""
        is_relative = any(arg in {".", ".."} or arg.startswith(("./", "../")) for arg in args)
        cwd = self._written.get("cwd")
        if not cwd and not is_relative:
            return
        if "cwd" in self._form.copied:
            folder = self._folder / Path(str(cwd or ".")).expanduser()
            self._value[self._form.copied["cwd"]] = self._translate_text("cwd", str(folder))
        else:
            self._lose("cwd", "the server starts in another folder, so relative paths lead elsewhere; write whole ones")

    def _write_remote(self, url_key: str, kind: str | None) -> None:
        if kind:
            self._value["type"] = kind
        self._value[url_key] = self._translate_text("url", str(self._written.get("url") or ""))
        headers = {str(name): str(value) for name, value in (self._written.get("headers") or {}).items()}
        auth = self._written.get("auth")
        if isinstance(auth, Mapping) and auth.get("type") == "bearer":
            headers["Authorization"] = f"Bearer {auth.get('token')}"
        elif isinstance(auth, Mapping):
            self._write_oauth(auth)
        self._write_headers(headers)

    def _write_headers(self, headers: Mapping[str, str]) -> None:
        form = self._form
        rest: dict[str, str] = {}
        named: dict[str, str] = {}
        for name, value in headers.items():
            variable = _find_single_variable(value)
            token = _find_single_variable(value.removeprefix("Bearer ")) if value.startswith("Bearer ") else None
            if form.bearer_key and token and name.lower() == "authorization":
                self._value[form.bearer_key] = token
                self._variables[token] = None
            elif form.header_names_key and variable:
                named[name] = variable
                self._variables[variable] = None
            else:
                rest[name] = self._translate_header(name, value)
        if rest:
            self._value[form.headers_key] = rest
        if named:
            self._value[form.header_names_key] = named

    def _translate_header(self, name: str, value: str) -> str:
        form = self._form
        if form.reference or not form.env_names_key or form.header_names_key:
            return self._translate_text(f"headers.{name}", value)
        # goose: references in headers are replaced, for the variables that it is told to look up.
        names: dict[str, None] = {}

        def remember(variable: str, default: str | None) -> str:
            if default is not None:
                self._lose(f"headers.{name}", f"the default of {variable} is not used")
            names[variable] = None
            return f"${{{variable}}}"

        text = map_references(value, remember, self._fixed_values)
        listed = self._value.setdefault(form.env_names_key, []) if names else []
        listed += [variable for variable in names if variable not in listed]
        self._variables |= names
        return text

    def _write_oauth(self, auth: Mapping[str, Any]) -> None:
        form = self._form
        if auth.get("type") != "oauth_authorization_code":
            self._lose("auth", f"{self._program.label} has no login without a person")
            return
        block: dict[str, Any] = {}
        for key, value in auth.items():
            if key == "type":
                continue
            if key in form.oauth_names:
                name = form.oauth_names[key]
                block[name] = self._translate_text(f"auth.{key}", value) if isinstance(value, str) else value
            else:
                self._lose(f"auth.{key}", "it has no such setting")
        if block:
            self._value[form.oauth_key] = block

    def _write_settings(self) -> None:
        form, written = self._form, self._written
        timeout = written.get("request_timeout")
        if timeout is not None and form.timeout_key:
            self._value[form.timeout_key] = timeout * 1000 if self._program.timeout_unit == "ms" else timeout
        elif timeout is not None:
            self._lose("request_timeout", "it has no such setting")
        startup = written.get("startup_timeout")
        if startup is not None and form.startup_timeout_key:
            self._value[form.startup_timeout_key] = startup
        elif startup is not None:
            self._lose("startup_timeout", "it has no such setting")
        if written.get("enabled") is False:
            if form.off:
                self._value[form.off[0]] = form.off[1]
            else:
                self._lose("enabled", "it has no key that switches a server off, so it will be used")
        for key, theirs in form.copied.items():
            if key not in {"cwd", "env_file"} and written.get(key) is not None:
                value = written[key]
                self._value[theirs] = self._translate_text(key, value) if isinstance(value, str) else value

    def _write_permissions(self) -> None:
        form, written = self._form, self._written
        for key, theirs in (("allowed_tools", form.allow_key), ("denied_tools", form.deny_key)):
            names = written.get(key)
            if names is None or names == []:
                continue
            if theirs and not any(_GLOB & set(str(name)) for name in names):
                self._value[theirs] = list(names)
            else:
                what = "it takes whole names only" if theirs else "it offers every tool of a server"
                self._lose(key, what)
        approval = written.get("approval", "never")
        always = approval.get("always") if isinstance(approval, Mapping) else None
        if form.auto_approve_key and isinstance(approval, Mapping) and always == ["*"]:
            self._value[form.auto_approve_key] = list(approval.get("never") or ())
        elif form.auto_approve_key and approval == "always":
            self._value[form.auto_approve_key] = []
        elif approval != "never":
            self._lose("approval", "it asks by its own rules")

    def _name_other_keys(self) -> None:
        for key, value in self._written.items():
            if key not in _HANDLED and key not in self._form.copied and value is not None:
                self._lose(key, "it has no such setting")

    @property
    def _fixed_values(self) -> dict[str, str]:
        return {"workspaceFolder": str(self._folder), "userHome": str(Path.home())}

    def _translate_text(self, key: str, text: str) -> str:
        """Return the text with references as the program writes them, and with our folders as they are here."""
        form = self._form

        def refer(name: str, default: str | None) -> str:
            if not form.reference:
                if default is not None:
                    self._lose(key, f"{self._program.label} does not replace {name}: its default is written")
                    return default
                self._lose(key, f"{self._program.label} does not replace ${{{name}}}: write the value in its place")
                return f"${{{name}}}"
            if default is not None and form.has_defaults:
                return f"${{{name}:-{default}}}"
            if default is not None:
                self._lose(key, f"the default of {name} is not used")
            self._variables[name] = None
            return form.reference.replace("NAME", name)

        result = map_references(text, refer, self._fixed_values)
        if "$${" in result and form.reference:
            # It must not become a reference to a variable of the user.
            self._lose(key, "a literal '${' would be taken for a variable, and is written as '$ {'")
            return result.replace("$${", "$ {")
        return result.replace("$${", "${")

    def _lose(self, key: str, reason: str) -> None:
        self._lost.append(Loss(server=self._name, key=key, reason=reason))


def describe_entry(written: Mapping[str, Any]) -> str:
    """Describe how a server is started or reached: its command line or its URL, as written, without secrets."""
    if written.get("url"):
        return mask_url(str(written["url"]))
    command = str(written.get("command") or CommandType.NPX)
    args = written.get("args") or [*DEFAULT_ARGS.get(command, ()), str(written.get("server") or "")]
    return shlex.join([command, *mask_arguments([str(arg) for arg in args if arg])])


def _find_single_variable(text: str) -> str | None:
    """Return the variable of a text that is one reference and nothing else."""
    names: list[str] = []

    def remember(name: str, default: str | None) -> str:
        if default is None:
            names.append(name)
            return ""
        return default or " "

    rest = map_references(text, remember, {})
    return names[0] if len(names) == 1 and not rest else None


def _forward_variables(args: list[str], names: list[str]) -> list[str]:
    """Return the arguments of docker with `-e NAME` for each variable, which HoloDeck adds by itself."""
    if "run" not in args:
        return args
    missing = [name for name in names if name not in args and not any(arg.startswith(f"{name}=") for arg in args)]
    at = args.index("run") + 1
    return [*args[:at], *(word for name in missing for word in ("-e", name)), *args[at:]]
