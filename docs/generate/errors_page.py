"""`reference/errors.md`: errors of the HTTP API, and exceptions of the Python API."""

from __future__ import annotations

import inspect

from generate.markdown import NOTICE, code, fence, join_blocks, table
from holodeck.gateway.http.error_codes import GROUP_TITLES, ErrorCode, errors_of
from holodeck.lib import errors

_INTRO = """\
Look up an error here: what it means, and what to do about it.

- [Errors of the HTTP API](#errors-of-the-http-api), by their `code`
- [Exceptions](#exceptions) of the Python API

The command line has [exit codes](exit-codes.md)."""

_GATEWAY_FILE = """\
# gateway.yaml
models:
  - name: demo
    model:
      provider: rehearsal
      name: rehearsal"""

_REQUEST = """\
curl -s localhost:8080/v1/responses \\
  -H 'content-type: application/json' \\
  -d '{"model": "demo", "input": "Hello", "temprature": 0.5}'"""

_REPLY = """\
{"error":{"message":"Unknown parameter: 'temprature'. ...","type":"invalid_request","code":"unknown_parameter",\
"param":"temprature"}}"""

_SHAPE = """\
`message` is for people, `code` for programs, and `param` is the path of the field that is wrong. The error of a failed
run also has a `response_id`. The same object is in the `error` event of a stream and in the `error` message of a
WebSocket.

Two headers tell a client whether to try again. `retry-after` has the seconds to wait. `x-should-retry: false` says that
the same request would fail again, or that its tools have run already. OpenAI's packages follow both."""

_EXCEPTION_EXAMPLE = """\
import asyncio

import holodeck


async def main():
    try:
        async with holodeck.load_agent("missing.yaml") as agent:
            await agent.run("Hello")
    except holodeck.ConfigError as error:
        print("Fix the file:", error)
    except holodeck.HoloDeckError as error:
        print("Try again later:", error)


asyncio.run(main())"""

_EXCEPTION_OUTPUT = """\
Fix the file: missing.yaml: ConfigError: there is no such file
  Check the name, or make an agent with 'holodeck init'."""

_EXCEPTION_RULES = """\
`except holodeck.HoloDeckError` catches every failure that is not a bug. The other classes are in `holodeck.lib.errors`.

A run that fails raises nothing: `agent.run` returns a result whose `status` is `failed` and whose `error` has a `code`
and a `message`. A tool that fails is no error of the run either: the model reads what happened, and goes on."""

_ADVICE: dict[type[Exception], str] = {
    errors.HoloDeckError: "Catch it last.",
    errors.ConfigError: "Correct the file. `problems` has a line, a message and a fix for each problem.",
    errors.MCPConfigError: "Correct the entry of the server.",
    errors.MissingTransportFieldError: "Add `command` for stdio, or `url` for the other transports.",
    errors.ValidationError: "Correct the value.",
    errors.CassetteMismatchError: "Read `diff`. Correct the agent, or record the cassette anew.",
    errors.BadRequestError: "Change the request. `param` is the field, `code` the error of the HTTP API.",
    errors.ExecutionError: "Read the message. The files are right.",
    errors.StorageError: "Look at the disk or the database, then try again.",
    errors.SessionConflictError: "Ask again: the run then starts from what the other process has stored.",
    errors.ServerUnavailableError: "Start the server, or remove `required: true`.",
    errors.HookError: "Correct the hook. A run has it as `error` with the code `hook_failed`.",
    errors.ModelError: "If `is_retryable`, try again, after `retry_after` seconds if that is set.",
    errors.RunError: "Read `result`, which has what the run did before its end.",
    errors.RunFailedError: "Read `result.error`: a `code`, a `message`, and whether to try again.",
    errors.RunIncompleteError: "Raise the limit that `result.cause` names, or go on from `result.history`.",
    errors.RunCancelledError: "Nothing, or run again.",
    errors.RunPausedError: "Run again with the outputs of the calls in `result.pending`.",
    errors.MCPError: "`server` and `phase` say where. `holodeck mcp doctor` finds the cause.",
    errors.MCPConnectionError: "Check the command or the URL with `holodeck mcp doctor`.",
    errors.MCPTimeoutError: "Try again, or raise the timeout of the server.",
    errors.MCPProtocolError: "The server is wrong, or the arguments are: read the message.",
    errors.MCPToolError: "Read `result`: the tool says what it could not do.",
    errors.MCPToolNotFoundError: "Choose a name that `holodeck mcp tools` lists.",
}

_SEE_ALSO = """\
## See also

- [HTTP API](http-api.md)
- [Events](events.md)
- [Exit codes](exit-codes.md)"""


def build_page() -> str:
    """Return the page."""
    return join_blocks(
        [
            "# Errors",
            NOTICE,
            _INTRO,
            "## Errors of the HTTP API",
            fence(_GATEWAY_FILE, "yaml"),
            fence("holodeck serve gateway.yaml &", "bash"),
            fence(_REQUEST, "bash"),
            fence(_REPLY),
            _SHAPE,
            *_group_sections(),
            "## Exceptions",
            fence(_EXCEPTION_EXAMPLE, "python"),
            fence(_EXCEPTION_OUTPUT),
            _EXCEPTION_RULES,
            table(("Exception", "Is a", "When", "What to do"), map(_exception_row, _exceptions())),
            _SEE_ALSO,
        ]
    )


def _group_sections() -> list[str]:
    """The errors of each group. One that belongs to several groups is in each of them."""
    blocks = []
    for group, title in GROUP_TITLES.items():
        rows = map(_error_row, errors_of([group]))
        blocks += [f"### {title}", table(("Status", "Code", "Type", "When", "What to do"), rows)]
    return blocks


def _error_row(error: ErrorCode) -> tuple[str, ...]:
    shown = "none" if error.code is None else code(error.code)
    return (str(error.status), shown, code(error.kind), error.when, error.advice)


def _exceptions() -> list[type[Exception]]:
    """The classes of the tree of errors, in the order of their module."""
    classes = [
        each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.HoloDeckError)
    ]
    return [each for each in classes if each.__module__ == errors.__name__]


def _exception_row(kind: type[Exception]) -> tuple[str, ...]:
    when = " ".join((inspect.getdoc(kind) or "").split())
    return (code(kind.__name__), code(kind.__mro__[1].__name__), when, _ADVICE[kind])
