"""The tests that touch dependencies, on other Pythons and with other versions of them: `make compat`.

Each leg has an environment of its own in `.cache/compat`, with this project and its development tools in it. A Python
that is not on the machine is named and left out; `make compat LEGS="lowest"` takes some of the legs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "compat"
UV = Path(sys.executable).with_name("uv")
EXTRAS = ("--extra=durable", "--extra=postgres", "--extra=otel")
TESTS = (
    "tests/test_startup.py",
    "tests/test_wheel.py",
    "tests/agents/test_agent_definitions.py",
    "tests/agents/test_agent_sessions.py",
    "tests/agents/test_application_traces.py",
    "tests/agents/test_function_tools.py",
    "tests/agents/test_hooks.py",
    "tests/cassettes/test_cassette_file.py",
    "tests/config",
    "tests/cli/test_chat.py",
    "tests/cli/test_mcp_list.py",
    "tests/cli/test_run.py",
    "tests/cli/test_run_traces.py",
    "tests/cli/test_runs.py",
    "tests/cli/test_schema.py",
    "tests/cli/test_validate.py",
    "tests/deploy/test_monitoring.py",
    "tests/durable/test_crash_points.py",
    "tests/engine",
    "tests/gateway/test_callers.py",
    "tests/gateway/test_conversations.py",
    "tests/gateway/test_durable_runs.py",
    "tests/gateway/test_http_conformance.py",
    "tests/gateway/test_metrics.py",
    "tests/gateway/test_openai_package.py",
    "tests/gateway/test_ws_protocol.py",
    "tests/gateway/test_schema_limits.py",
    "tests/gateway/test_serve_process.py",
    "tests/gateway/test_responses_ws.py",
    "tests/gateway/test_compact.py",
    "tests/providers/test_chat_answers.py",
    "tests/providers/test_http1_pool.py",
    "tests/providers/test_model_proxy.py",
    "tests/providers/test_schemas.py",
    "tests/real/test_quick_start.py",
    "tests/storage/test_postgres.py",
    "tests/storage/test_store.py",
    "tests/tools/mcp/test_tool_results.py",
    "tests/tools/mcp/test_auth_client_credentials.py",
    "tests/tools/mcp/test_auth_login.py",
    "tests/tools/mcp/test_transports.py",
)
# Run by the Python of a leg: the metadata of the installed project names its direct dependencies.
VERSIONS = """
import platform, re
from importlib.metadata import requires, version
print("    python", platform.python_version())
skipped = "extra == 'local'"
names = {re.match(r"[\\w.-]+", each)[0] for each in requires("holodeck-engine") if skipped not in each}
for name in sorted(names, key=str.lower):
    print("   ", name, version(name))
"""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One environment. `versions`: `lowest` that pyproject.toml allows, as in the `lock`, or the `newest`."""

    name: str
    python: str
    versions: str


LEGS = (
    Leg(name="lowest", python="3.11", versions="lowest"),
    Leg(name="3.12", python="3.12", versions="lock"),
    Leg(name="newest", python="3.13", versions="newest"),
)


def main(wanted: list[str]) -> int:
    missing = [path for path in TESTS if not (ROOT / path).exists()]
    if missing:
        print(f"No such tests: {', '.join(missing)}. Correct TESTS in {Path(__file__).name}.", file=sys.stderr)
        return 2
    unknown = [name for name in wanted if name not in {leg.name for leg in LEGS}]
    if unknown:
        print(f"No such leg: {', '.join(unknown)}. There are {', '.join(leg.name for leg in LEGS)}.", file=sys.stderr)
        return 2
    outcomes: list[tuple[str, bool | None]] = []
    for leg in LEGS:
        if wanted and leg.name not in wanted:
            continue
        interpreter = find_interpreter(leg.python)
        label = f"{leg.name} (Python {leg.python}, versions: {leg.versions})"
        if interpreter is None:
            outcomes.append((f"{label}: not tried, Python {leg.python} is not on this machine", None))
            continue
        began = time.monotonic()
        print(f"==> {label}", flush=True)
        has_passed = set_up(leg, interpreter) and print_versions(leg) and run_tests(leg)
        outcomes.append(
            (f"{label}: {'passed' if has_passed else 'FAILED'}, {time.monotonic() - began:.0f} s", has_passed)
        )
    print("\ncompat:")
    for line, _ in outcomes:
        print(f"  {line}")
    return 1 if any(has_passed is False for _, has_passed in outcomes) else 0


def find_interpreter(version: str) -> Path | None:
    """A working interpreter of this version on PATH or among pyenv's, whose shims work for chosen versions only."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{version}")
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    return next((each for each in candidates if _works(each)), None)


def set_up(leg: Leg, interpreter: Path) -> bool:
    """An environment with the versions of the leg. It is kept, so that only the first time is slow."""
    folder = CACHE / leg.name
    pinned = folder.with_suffix(".txt")
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (folder / "bin" / "python").exists() and not _run(UV, "venv", "--quiet", "--python", interpreter, folder):
        return False
    choose = (
        UV,
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--upgrade",
        "--python",
        folder,
        "pyproject.toml",
        *EXTRAS,
    )
    if leg.versions == "lowest":
        bounds = folder.with_suffix(".bounds.txt")
        is_chosen = _run(*choose, "--resolution=lowest-direct", "--output-file", bounds) and _run(
            *choose, "--group=dev", "--constraint", bounds, "--output-file", pinned
        )
    elif leg.versions == "newest":
        is_chosen = _run(*choose, "--group=dev", "--output-file", pinned)
    else:
        pinned, is_chosen = ROOT / "requirements" / "dev.lock", True
    install = (
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        folder,
        "--no-deps",
        "--no-build-isolation",
        "--editable",
        ".",
    )
    return is_chosen and _run(UV, "pip", "sync", "--quiet", "--python", folder, pinned) and _run(*install)


def print_versions(leg: Leg) -> bool:
    """Print the version of Python and of each direct dependency, a line each."""
    return _run(CACHE / leg.name / "bin" / "python", "-c", VERSIONS)


def run_tests(leg: Leg) -> bool:
    python = CACHE / leg.name / "bin" / "python"
    workers = str(2 * (os.cpu_count() or 1))
    return _run(python, "-m", "pytest", "-n", workers, "--dist", "worksteal", *TESTS)


def _run(*command: str | Path) -> bool:
    return subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode == 0


def _works(interpreter: Path) -> bool:
    return subprocess.run([interpreter, "--version"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
