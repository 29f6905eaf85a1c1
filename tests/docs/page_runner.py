"""Runs the blocks of one page in their order, as a reader does in one terminal.

A page has an empty folder, a HOME and ports of its own. Blocks share one shell session: its folder and its variables
stay from block to block, and files are written to the folder in which the shell is. `bash` blocks run with `set -e`.
A line that ends in `&` starts a program in the background; the block continues when the program has printed its URL,
and the program is ended with the page. Ports that the page names (`127.0.0.1:8080`, `port: 8081`) are replaced by free
ones, and back in what is shown, so that pages run side by side.

An agent or gateway file is also checked by `holodeck validate --strict`, with a placeholder for each variable that it
names, unless the next block runs `holodeck validate` itself.
"""

from __future__ import annotations

import difflib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from docs.page_blocks import Block, Purpose, console_commands, read_blocks
from holodeck_command import run_holodeck
from installed_servers import NPM_VARIABLES
from real.project import ROOT, search_path
from warm_holodeck import warm_address

BLOCK_SECONDS = 180.0
"""Ends a block that hangs. A server's package may have to be fetched first, on a busy machine."""
END_SECONDS = 30.0
"""For a program in the background to end after SIGTERM."""
_PORT = re.compile(r"(?:127\.0\.0\.1:|localhost:|port: ?|PORT=)(\d{4,5})\b")
_DEFAULT_PORT = "8080"
_LISTENS = re.compile(r"(?i)\b(?:serving|listening|running)\b.*")
_BACKGROUND = re.compile(r"(?m)(?<!&)&[ \t]*(?:#.*)?$")
_VARIABLE = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_ANYTHING = re.compile(r"\.\.\.( ms\b| s\b)?")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)")
# npx looks its packages up, and a machine may trust the registry by a certificate of its own.
_INHERITED = ("LANG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "HOLODECK_TRUST")
_AGENT_KEYS = {"instructions", "tools", "model", "test_cases", "test_settings", "response_format", "max_turns"}
_COMMAND = """#!/bin/sh
if [ "$1" = serve ] && [ -z "$HOLODECK_LISTEN__PORT" ] && ! grep -qs 'port:' "$@"; then
  export HOLODECK_LISTEN__PORT={port}
fi
exec {program} "$@"
"""
"""The `holodeck` of a page. A gateway whose file names no port listens on the one that stands for the default."""
_FREE_PORTS = range(15000, 32000)
"""Below those that the kernel gives to whatever asks for any."""


class PageError(AssertionError):
    """A block does not do what its page says."""


def run_page(page: Path, folder: Path, environ: Mapping[str, str] | None = None) -> None:
    """Run every block of the page; raise `PageError` for the first that is wrong.

    `folder` is empty and is left to the caller. A README that stands beside an example runs in a copy of the example.
    """
    blocks = read_blocks(page)
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
    with _Session(page, blocks, folder, environ or {}) as session:
        for number, block in enumerate(blocks):
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            try:
                session.run(block, following)
            except AssertionError as error:
                raise PageError(f"{name}:{block.line}: {error}") from None


def runs_programs(blocks: list[Block]) -> bool:
    """Whether a page starts anything but `holodeck validate` of its files."""
    return any(block.purpose in {Purpose.RUN, Purpose.CONSOLE} and not block.reason_not_run for block in blocks)


def check_blocks(page: Path) -> None:
    """Check what can be checked of a page without running it; raise `PageError` for the first block that is wrong."""
    for block in read_blocks(page):
        try:
            _require_purpose(block)
            if block.purpose is Purpose.WRITE:
                _check_syntax(Path(block.file), block.text)
        except AssertionError as error:
            raise PageError(f"{page.relative_to(ROOT)}:{block.line}: {error}") from None


def explain_difference(expected: str, actual: str) -> str:
    """Return a diff, or nothing if the output is the expected one, in which `...` stands for anything."""
    shown, printed = _clean(expected), _clean(actual)
    patterns = [_pattern(line) for line in shown]
    if re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in printed)):
        return ""
    # Lines that fit are taken from what was printed, so that the diff shows the others.
    fitting = [
        next((line for line in printed if re.fullmatch(pattern, f"{line}\n")), text)
        for text, pattern in zip(shown, patterns, strict=True)
    ]
    return "\n".join(difflib.unified_diff(fitting, printed, "the page", "what was printed", lineterm=""))


def _clean(text: str) -> list[str]:
    return [line.rstrip() for line in _ESCAPES.sub("", text).replace("\r\n", "\n").strip("\n").splitlines()]


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    # The unit of a time depends on how long it was: `... s` fits `951 ms` as well.
    parts = _ANYTHING.split(line)
    texts, units = parts[::2], parts[1::2]
    gaps = [".*? (?:ms|s|min)" if unit else ".*?" for unit in units]
    pattern = "".join(re.escape(text) + gap for text, gap in zip(texts, [*gaps, ""], strict=True))
    # The width of a column depends on what is in it.
    return re.sub(r"(?:\\ ){2,}", r"\\ +", pattern) + "\n"


class _Session:
    """The shell of one page, with its folders, ports and background programs."""

    def __init__(self, page: Path, blocks: list[Block], folder: Path, environ: Mapping[str, str]) -> None:
        self._example = page.parent if page.name == "README.md" and "examples" in page.parts else None
        self._own = folder / "session"
        self._scratch = folder / "page"
        self._home = folder / "home"
        self._programs: list[_Program] = []
        self._output = ""
        text = "\n".join(block.text for block in blocks)
        if self._example is not None:
            text += "".join(file.read_text() for file in _files_of(self._example))
        named = dict.fromkeys([_DEFAULT_PORT, *_PORT.findall(text)])
        self._ports = dict(zip(named, _choose_free_ports(len(named)), strict=True))
        self._is_warm = not re.search(r"kill -(?:9|KILL)", text)
        self._environ = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            **{"HOME": str(self._home), "TERM": "dumb", "COLUMNS": "100"},
            # Packages that an earlier run has fetched.
            **{"UV_CACHE_DIR": os.environ["UV_CACHE_DIR"], **NPM_VARIABLES},
            "PATH": f"{self._own}{os.pathsep}{search_path()}",
            # The page about trust shows what happens without it.
            **({"HOLODECK_TRUST": ""} if page.name == "trust.md" else {}),
            **environ,
        }

    def __enter__(self) -> _Session:
        for path in (self._own, self._home):
            path.mkdir()
        if self._example is None:
            self._scratch.mkdir()
        else:
            shutil.copytree(self._example, self._scratch)
            for file in _files_of(self._scratch):
                file.write_text(self._with_free_ports(file.read_text()))
        (self._own / "folder").write_text(str(self._scratch))
        (self._own / "variables").write_text("")
        program = ["python", "-m", "holodeck"]
        if self._is_warm:
            program = ["python", "-I", "-S", str(Path(__file__).parent / "warm_command.py"), warm_address().hex()]
        command = self._own / "holodeck"
        command.write_text(_COMMAND.format(port=self._ports[_DEFAULT_PORT], program=shlex.join(program)))
        command.chmod(0o755)
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.end()

    def run(self, block: Block, following: Block | None) -> None:
        _require_purpose(block)
        text = self._with_free_ports(block.text)
        if block.purpose is Purpose.WRITE:
            self._write(block, text, following)
        elif block.purpose is Purpose.PART:
            self._check_part(text)
        elif block.reason_not_run or block.purpose is Purpose.PICTURE:
            self._output = "..."
        elif block.purpose is Purpose.OUTPUT:
            if self._output != "...":
                self._compare(block.text, self._output)
        elif block.purpose is Purpose.CONSOLE:
            for command, expected in console_commands(text):
                code, output = self._shell(command)
                assert code == 0 or expected, f"`{command}` ended with {code}:\n{output}"
                self._compare(self._with_named_ports(expected), output)
        elif block.purpose is Purpose.RUN:
            self._run_program(block, text)

    def _run_program(self, block: Block, text: str) -> None:
        script = text
        if block.language == "python":
            source = self._own / f"block-{block.line}.py"
            source.write_text(text)
            script = f"python - < {shlex.quote(str(source))}"
        code, self._output = self._shell(script)
        assert code == 0, f"the block ended with {code}:\n{self._with_named_ports(self._output)}"

    def _compare(self, expected: str, output: str) -> None:
        difference = explain_difference(expected, self._with_named_ports(output))
        assert not difference, f"the output is another one:\n{difference}"

    def _write(self, block: Block, text: str, following: Block | None) -> None:
        folder = Path((self._own / "folder").read_text().strip())
        path = self._home / block.file[2:] if block.file.startswith("~/") else folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        _check_syntax(path, text)
        is_validated_by_page = following is not None and "holodeck validate" in following.text
        if path.suffix in {".yaml", ".yml"} and _is_ours(path, text) and not is_validated_by_page:
            self._validate(path)

    def _check_part(self, text: str) -> None:
        """A part of an agent or gateway file is checked in a file that has the rest."""
        keys = set(yaml.safe_load(text))
        if keys <= {"type", "name", "description"} | _AGENT_KEYS:
            name, rest = "agent.yaml", "" if "name" in keys else "name: part\n"
        else:
            name, rest = (
                "gateway.yaml",
                "" if keys & {"models", "agents"} else "models: [{name: part, model: {provider: rehearsal}}]\n",
            )
        folder = self._own / "part"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"{rest}{text}\n")
        self._validate(folder / name)

    def _validate(self, path: Path) -> None:
        variables = dict.fromkeys(_VARIABLE.findall(path.read_text()), "placeholder")
        # Folders that a file names in this way are looked up elsewhere.
        variables = {name: value for name, value in variables.items() if name not in {"workspaceFolder", "userHome"}}
        env = {"HOME": str(self._home), "PATH": search_path(), **variables}
        done = run_holodeck("validate", "--strict", path, cwd=path.parent, env=env)
        assert done.returncode == 0, f"{path.name} is not valid:\n{done.stdout}{done.stderr}"

    def _shell(self, script: str) -> tuple[int, str]:
        """Run a script in the session of the last one; return its exit code and what it printed."""
        folder, variables = shlex.quote(str(self._own / "folder")), shlex.quote(str(self._own / "variables"))
        lines = [
            f'cd "$(cat {folder})"; . {variables}',
            f"trap 'code=$?; pwd > {folder}; declare -p | grep -Ev \"^declare -[a-zA-Z]*[rA]|^declare -[-a-zA-Z]+ "
            f"(BASH|PIPESTATUS|DIRSTACK|FUNCNAME|GROUPS|_=|code=|SHLVL)\" > {variables}; exit $code' EXIT",
            "set -e",
            self._with_background(script),
        ]
        file = self._own / "script"
        file.write_text("\n".join(lines) + "\n")
        with subprocess.Popen(
            ["bash", str(file)],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            with _killed_after(BLOCK_SECONDS, process):
                assert process.stdout is not None
                output = process.stdout.read().decode(errors="replace")
            code = process.wait()
        return code, output

    def _with_background(self, script: str) -> str:
        """The script, in which a program in the background writes to a pipe and its address is waited for."""

        def started(_: re.Match[str]) -> str:
            program = _Program(self._own / f"program-{len(self._programs)}")
            self._programs.append(program)
            return program.shell_lines()

        return _BACKGROUND.sub(started, script)

    def _with_free_ports(self, text: str) -> str:
        return re.sub(r"\b\d{4,5}\b", lambda found: self._ports.get(found[0], found[0]), text)

    def _with_named_ports(self, text: str) -> str:
        named = {free: port for port, free in self._ports.items()}
        return re.sub(r"\b\d{5}\b", lambda found: named.get(found[0], found[0]), text)


class _Program:
    """A program in the background of a page. What it prints until it listens is shown by the block that starts it."""

    def __init__(self, path: Path) -> None:
        self._output, self._start, self._pid = (path.with_suffix(end) for end in (".output", ".start", ".pid"))
        self._failed = path.with_suffix(".failed")
        for pipe in (self._output, self._start):
            os.mkfifo(pipe)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def shell_lines(self) -> str:
        paths = (self._output, self._start, self._pid, self._failed)
        output, start, pid, failed = (shlex.quote(str(path)) for path in paths)
        return f"> {output} 2>&1 &\necho $$ > {pid}; cat {start}; test ! -e {failed}"

    def end(self) -> None:
        """Signal the program and the processes that it has started to end, and wait until all have.

        The script is the leader of their process group. Its pipe ends with the last of them: `npx` ends before the
        server that it has started.
        """
        if not self._pid.exists():
            # The script did not reach it: the reader still waits for the other end of its pipe.
            os.close(os.open(self._output, os.O_RDWR))
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._reader.is_alive() and self._pid.exists():
                with suppress(ProcessLookupError):
                    os.killpg(int(self._pid.read_text()), number)
            self._reader.join(END_SECONDS)

    def _read(self) -> None:
        with self._output.open(errors="replace") as output:
            shown = []
            for line in output:
                shown.append(line)
                if _LISTENS.search(line):
                    break
            else:
                self._failed.touch()
            self._start.write_text("".join(shown))
            output.read()


@contextmanager
def _killed_after(seconds: float, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a script that hangs, with all that it has started in the foreground."""
    timer = threading.Timer(seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _choose_free_ports(number: int) -> list[str]:
    ports: list[str] = []
    # Not the seeded generator of the tests: pages in other workers would choose the same.
    chooser = random.SystemRandom()
    while len(ports) < number:
        port = chooser.choice(_FREE_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) and str(port) not in ports:
                ports.append(str(port))
    return ports


def _files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _require_purpose(block: Block) -> None:
    if block.purpose is Purpose.UNKNOWN and not block.reason_not_run:
        raise PageError(
            f"a {block.language or 'nameless'!r} block is neither run nor checked. "
            "Name its file in its first line, or write <!-- not run: reason --> before it."
        )


def _check_syntax(path: Path, text: str) -> None:
    try:
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix == ".toml":
            tomllib.loads(text)
        elif path.suffix in {".yaml", ".yml"}:
            list(yaml.safe_load_all(text))
        elif path.suffix == ".py":
            compile(text, path.name, "exec")
    except (ValueError, SyntaxError, yaml.YAMLError) as error:
        raise PageError(f"{path.name} is no {path.suffix[1:]}: {error}") from None


def _is_ours(path: Path, text: str) -> bool:
    """Whether a YAML file is one of an agent or a gateway, judged by its name and its keys."""
    data = next(yaml.safe_load_all(text))
    if not isinstance(data, dict) or {"apiVersion", "services", "scrape_configs"} & set(data):
        return False
    is_agent = "name" in data and bool(_AGENT_KEYS & set(data))
    return is_agent or bool({"models", "agents"} & set(data)) or path.stem in {"agent", "gateway"}
