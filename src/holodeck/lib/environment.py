"""The environment variables that HoloDeck reads, with their meaning, for the documentation.

A variable that is read anywhere in the source and is not in this table fails a test. Variables that a user names in a
file (`${NAME}`) and those of one key of a gateway file (`HOLODECK_...__...`) are not listed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EnvironmentVariable:
    """One variable, or a family of them whose names differ in the part in capital letters after the prefix."""

    name: str
    meaning: str
    default: str = "-"
    example: str


FILES = (
    EnvironmentVariable(
        name="HOME",
        meaning="Your home folder: shared settings and trusted files in `~/.holodeck`, and the folders below.",
        example="/home/alice",
    ),
    EnvironmentVariable(
        name="HOLODECK_STATE",
        meaning="Folder of durable runs and of stored sessions.",
        default="`$XDG_STATE_HOME/holodeck`",
        example="/var/lib/holodeck",
    ),
    EnvironmentVariable(
        name="XDG_STATE_HOME",
        meaning="Durable runs, stored sessions and the lines typed in `holodeck chat` are in its folder `holodeck`.",
        default="`~/.local/state`",
        example="/home/alice/.state",
    ),
    EnvironmentVariable(
        name="XDG_CONFIG_HOME",
        meaning="Logins of `holodeck mcp login` are in its folder `holodeck/tokens`, if there is no keyring.",
        default="`~/.config`",
        example="/home/alice/.config",
    ),
    EnvironmentVariable(
        name="XDG_CACHE_HOME",
        meaning="Weights of local models are in its folder `holodeck/models`.",
        default="`~/.cache`",
        example="/mnt/large/cache",
    ),
    EnvironmentVariable(
        name="CODEX_HOME",
        meaning="Folder of Codex's `config.toml`, for `holodeck mcp export --for codex --install`.",
        default="`~/.codex`",
        example="/home/alice/codex",
    ),
)
FILE_VALUES = (
    EnvironmentVariable(
        name="HOLODECK_KEY__KEY",
        meaning="One value of a gateway file. `__` stands between the keys of its path.",
        example="HOLODECK_LISTEN__PORT=9000",
    ),
    EnvironmentVariable(
        name="INPUT_NAME",
        meaning="Answer to the input `NAME` of a VS Code `mcp.json`: `${input:api-key}` is `INPUT_API_KEY`.",
        example="INPUT_API_KEY=...",
    ),
)
TRUST = (
    EnvironmentVariable(
        name="HOLODECK_TRUST",
        meaning="Files that may do what they say, without the question: trust digests, separated by commas, or `all`. "
        "Only the environment of the process counts, never a `.env` file.",
        example="all",
    ),
)
GATEWAYS = (
    EnvironmentVariable(
        name="HOLODECK_OPERATOR_KEY",
        meaning="Key of an operator, for `holodeck keys --url`.",
        example="hd-...",
    ),
)
TESTS = (
    EnvironmentVariable(
        name="CI",
        meaning="Set to anything where tests run unattended: `holodeck test` replays a cassette that is there, and no "
        "cassette is recorded.",
        example="true",
    ),
)
TERMINAL = (
    EnvironmentVariable(name="NO_COLOR", meaning="Any value: no colours.", example="1"),
    EnvironmentVariable(name="TERM", meaning="`dumb`: no colours.", example="dumb"),
    EnvironmentVariable(
        name="PAGER", meaning="Program that shows a page of `holodeck docs`.", default="`less`", example="less -R"
    ),
    EnvironmentVariable(
        name="BROWSER",
        meaning="Browser that `holodeck mcp login` opens.",
        default="that of your desktop",
        example="firefox",
    ),
)
NETWORK = (
    EnvironmentVariable(
        name="HTTPS_PROXY",
        meaning="Proxy for `https://` addresses. Loopback addresses never use one.",
        example="http://proxy.example.com:3128",
    ),
    EnvironmentVariable(
        name="HTTP_PROXY", meaning="Proxy for `http://` addresses.", example="http://proxy.example.com:3128"
    ),
    EnvironmentVariable(
        name="ALL_PROXY",
        meaning="Proxy for addresses of a scheme without one of its own.",
        example="http://proxy.example.com:3128",
    ),
    EnvironmentVariable(
        name="NO_PROXY", meaning="Hosts that are reached without a proxy, separated by commas.", example=".internal"
    ),
    EnvironmentVariable(
        name="SSL_CERT_FILE", meaning="Certificates that TLS connections trust.", example="/etc/ssl/company.pem"
    ),
    EnvironmentVariable(
        name="SSL_CERT_DIR", meaning="Folder of certificates that TLS connections trust.", example="/etc/ssl/certs"
    ),
)
TRACES = (
    EnvironmentVariable(
        name="OTEL_EXPORTER_OTLP_ENDPOINT",
        meaning="Collector for traces. Set: traces are exported, also without `otel` in the gateway file.",
        example="http://127.0.0.1:4318",
    ),
    EnvironmentVariable(
        name="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        meaning="The same, for traces alone, with the whole path.",
        example="http://127.0.0.1:4318/v1/traces",
    ),
    EnvironmentVariable(
        name="OTEL_SERVICE_NAME", meaning="Name of the service in traces.", default="`holodeck`", example="support"
    ),
    EnvironmentVariable(name="OTEL_SDK_DISABLED", meaning="`true`: no traces.", example="true"),
    EnvironmentVariable(name="OTEL_TRACES_EXPORTER", meaning="`none`: no traces.", example="none"),
)
CONTAINERS = (
    EnvironmentVariable(
        name="PATH", meaning="Where `npx`, `uvx` and `docker` are found.", example="/usr/local/bin:/usr/bin"
    ),
    EnvironmentVariable(
        name="XDG_RUNTIME_DIR",
        meaning="Passed to `docker`, for its socket.",
        example="/run/user/1000",
    ),
    EnvironmentVariable(
        name="DOCKER_HOST",
        meaning="Docker daemon. It is passed on, as are `DOCKER_CONFIG`, `DOCKER_CONTEXT`, `DOCKER_API_VERSION`, "
        "`DOCKER_CERT_PATH`, `DOCKER_TLS_VERIFY` and `DOCKER_TLS`.",
        example="unix:///run/user/1000/docker.sock",
    ),
    EnvironmentVariable(
        name="OMP_WAIT_POLICY",
        meaning="How threads of a local model wait. Set to `passive` for the process if you do not set it.",
        default="`passive`",
        example="active",
    ),
)

ENVIRONMENT = {
    "Values of files": FILE_VALUES,
    "Trust": TRUST,
    "Gateways": GATEWAYS,
    "Tests": TESTS,
    "Folders": FILES,
    "Terminal": TERMINAL,
    "Network": NETWORK,
    "Traces": TRACES,
    "Programs and containers": CONTAINERS,
}
"""All variables, by what they are about."""
