"""Every error that HoloDeck raises on purpose, in one tree. Each message says what happened, where, and what to do.

HoloDeckError
├── ConfigError                  a file is wrong; carries every problem that was found in it
│   ├── MCPConfigError           ... in the definition of an MCP server
│   │   └── MissingTransportFieldError   a transport lacks its required field
│   └── ValidationError          ... a value that has the wrong shape
├── CassetteMismatchError        a replayed run does something else than its recording
├── BadRequestError              a client's request is wrong; carries the path of the field and a code
├── ExecutionError               a run failed for a reason outside the files
│   ├── StorageError             data could not be stored or read
│   ├── SessionConflictError     another process has changed a session during a run of it
│   ├── ServerUnavailableError   an MCP server with `required: true` is not available
│   ├── HookError                a hook or callback of the program failed; fails the run. Carries the name of the hook
│   ├── ModelError               the request to the model failed; carries provider and status
│   └── RunError                 a run has no output; carries its result. Raised by `RunResult.raise_for_status`
│       ├── RunFailedError       ... it failed
│       ├── RunIncompleteError   ... it reached a limit
│       ├── RunCancelledError    ... it was cancelled
│       └── RunPausedError       ... it waits for an approval, or for functions of the client
└── MCPError                     an MCP server failed; carries server and phase
    ├── MCPConnectionError       it could not be started or reached, or the connection was lost
    │   └── MCPTimeoutError      it did not answer in time
    ├── MCPProtocolError         it answered, with an error or with something that is not MCP
    ├── MCPToolNotFoundError     it has no tool or prompt of that name
    └── MCPToolError             a tool reported an error; carries its result
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.record import record

if TYPE_CHECKING:
    from holodeck.models.events import RunResult
    from holodeck.tools.mcp.content import MCPToolResult

Severity = Literal["error", "warning"]


class HoloDeckError(Exception):
    """Base class: `except HoloDeckError` catches every failure that is not a bug."""

    @property
    def public_text(self) -> str:
        """The message for callers that do not operate this program: no address, no file, no advice about either."""
        return "The run failed. The log of the gateway has the reason."


@record
class Problem:
    """One error or warning at one position of a file."""

    message: str
    file: str = ""
    line: int | None = None
    """Counted from 1, as editors do."""
    column: int | None = None
    key: str = ""
    """The path of the key in the file, such as `tools[0].command`."""
    fix: str = ""
    """How to correct it, in one sentence."""
    severity: Severity = "error"
    kind: type[ConfigError] | None = None
    """The exception class to raise when this is the only problem. None: `ConfigError`."""

    @property
    def where(self) -> str:
        """`agent.yaml:12:5`, a form that terminals and editors make clickable."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part not in ("", None))

    @property
    def label(self) -> str:
        """The name of this kind of problem in messages: `warning` or an exception class."""
        if self.severity == "warning":
            return "warning"
        kind = self.kind or ConfigError
        return MCPConfigError.__name__ if issubclass(kind, MCPConfigError) else kind.__name__

    def __str__(self) -> str:
        place = " ".join(part for part in (self.where, self.key) if part)
        text = f"{self.label}: {self.message}"
        return "\n".join(
            part for part in (f"{place}: {text}" if place else text, f"  {self.fix}" if self.fix else "") if part
        )


class ConfigError(HoloDeckError):
    """A file is wrong. `problems` lists every problem, in the order of the file."""

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems) or (Problem(message=message, kind=type(self)),)
        super().__init__(message or "\n".join(str(problem) for problem in self.problems))

    @staticmethod
    def of(problems: Iterable[Problem]) -> ConfigError:
        """Build the error for these problems: of their common class, or else a plain `ConfigError`."""
        found = tuple(problems)
        kinds = {problem.kind or ConfigError for problem in found}
        kind = kinds.pop() if len(kinds) == 1 else ConfigError
        return kind(problems=found)


class MCPConfigError(ConfigError):
    """The definition of an MCP server is wrong."""


class MissingTransportFieldError(MCPConfigError):
    """A transport lacks its required field: `command` for stdio, `url` for the others."""


class ValidationError(ConfigError):
    """A value has the wrong shape."""


class CassetteMismatchError(HoloDeckError):
    """A run that replays a cassette does something else than the run that was recorded.

    `file` is the cassette, `track` the case in it, `entry` the number of the entry that was compared (None: the
    cassette has none), `diff` the difference as a unified diff.
    """

    def __init__(self, message: str, *, file: str, track: str = "", entry: int | None = None, diff: str = "") -> None:
        super().__init__(message)
        self.file = file
        self.track = track
        self.entry = entry
        self.diff = diff


class BadRequestError(HoloDeckError):
    """A client's request is wrong. `param` is the path of the field, such as `input[2].content[0].image_url`."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    @property
    def public_text(self) -> str:
        return str(self)


class ExecutionError(HoloDeckError):
    """A run failed for a reason outside the files."""


class StorageError(ExecutionError):
    """Data could not be stored or read. A failed write leaves nothing behind.

    `reason`: the cause in public words, such as "the disk is full", with neither an address nor a file.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def public_text(self) -> str:
        return "The gateway cannot reach its storage. Try again."


class SessionConflictError(ExecutionError):
    """Another process has changed a session while a run of it went on: the run was not appended.

    `result` is that of the run, where an agent has run it. The session has what the other process has stored.
    """

    def __init__(self, message: str, result: RunResult[Any] | None = None) -> None:
        super().__init__(message)
        self.result = result


# Error codes of failed runs.
BAD_QUESTION = "invalid_prompt"
"""The model does not accept the request."""
ANSWER_MISFIT = "answer_does_not_fit"
"""The model was asked, and none of its answers has the format of the request."""
CONTEXT_TOO_LONG = "context_length_exceeded"
"""The context has more tokens than the model."""
OVERLOADED = "overloaded"
"""The request was not sent, because this machine has no capacity for it."""
RATE_LIMITED = "rate_limit_exceeded"
"""The provider refused the request because of its rate limit."""
BUDGET_EXCEEDED: Final = "budget_exceeded"
"""The caller of a gateway has spent its budget."""
STORAGE_FAILED = "storage_error"
"""The run could not be stored, and was ended before a tool acted for it."""
UNAVAILABLE = "model_unavailable"
"""The provider is overloaded, or the request was not sent because the provider keeps failing."""
SERVER_UNAVAILABLE = "server_unavailable"
"""The run was not started, because a required MCP server is not available."""
HOOK_FAILED = "hook_failed"
"""A hook or callback of the program raised an exception, or returned what it must not."""
UNSUPPORTED_FIELD = "unsupported_parameter"
"""The model has no such field of the request."""

_PUBLIC_MODEL_TEXTS = {
    BAD_QUESTION: "The model does not accept the request.",
    CONTEXT_TOO_LONG: "The conversation is too long for the model.",
    OVERLOADED: "The gateway has no capacity for this request at the moment. Try again later.",
    RATE_LIMITED: "The provider of the model limits how often it is asked. Try again later.",
    UNAVAILABLE: "The model is not available at the moment. Try again later.",
}
_PUBLIC_RETRYABLE_TEXT = "The model failed on this request. Try again."
_PUBLIC_FINAL_TEXT = "The model cannot be used as it is set up. The log of the gateway has the reason."


class ServerUnavailableError(ExecutionError):
    """An MCP server with `required: true` is not available."""

    @property
    def public_text(self) -> str:
        return str(self)


class HookError(ExecutionError):
    """A hook or callback of the program failed. `hook` is its name, such as `Audit.before_call`."""

    def __init__(self, hook: str, problem: str) -> None:
        super().__init__(f"The hook '{hook}' failed: {problem}")
        self.hook = hook


class ModelError(ExecutionError):
    """The request to the model failed. `is_retryable` says whether the same request may succeed later."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        is_retryable: bool = False,
        code: str = "",
        public_text: str = "",
    ) -> None:
        """`code`: one of the error codes above, for failures that a client can act on. `retry_after`: seconds.

        `public_text`: empty for the text that belongs to the code.
        """
        super().__init__(message)
        self._public_text = public_text
        self.code = code
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.is_retryable = is_retryable
        self.answered_by: str | None = None
        """The stand-in that had begun an answer that broke off; empty for the model itself. None: it has none."""

    @property
    def public_text(self) -> str:
        if self._public_text or self.code == UNSUPPORTED_FIELD:
            return self._public_text or str(self)
        other = _PUBLIC_RETRYABLE_TEXT if self.is_retryable else _PUBLIC_FINAL_TEXT
        return _PUBLIC_MODEL_TEXTS.get(self.code, other)


class RunError(ExecutionError):
    """A run has no output. `result` is what it has."""

    def __init__(self, message: str, result: RunResult[Any]) -> None:
        super().__init__(message)
        self.result = result


class RunFailedError(RunError):
    """The run failed; `result.error` has a code and whether the same request may succeed later."""


class RunIncompleteError(RunError):
    """The run reached a limit; `result.cause` says which."""


class RunCancelledError(RunError):
    """The run was cancelled."""


class RunPausedError(RunError):
    """The run waits for an approval, or for the outputs of functions that the client runs: see `result.pending`."""


class MCPError(HoloDeckError):
    """An MCP server failed. `server` and `phase` say where; `details` has values for programs."""

    def __init__(
        self, message: str, *, server: str = "", phase: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.server = server
        self.phase = phase
        self.details: dict[str, Any] = dict(details or {})

    @property
    def public_text(self) -> str:
        """The message for callers that do not operate the server: no address, no cause, none of its output."""
        return str(self)


class MCPConnectionError(MCPError):
    """The server could not be started or reached, or the connection to it was lost."""

    @property
    def public_text(self) -> str:
        if self.details.get("is_public"):
            return str(self)
        status = self.details.get("status")
        if self.phase == "authorize":
            what = "it does not accept the credentials" + (f" (HTTP {status})" if isinstance(status, int) else "")
        elif isinstance(status, int) and self.phase != "connect":
            # In the phase `connect`, the status is that of a proxy.
            what = f"it answered HTTP {status}"
        else:
            what = self._public_cause
        outcome = f" {OUTCOME_UNKNOWN}" if self.details.get("outcome") == "unknown" else ""
        return f"Server '{self.server}' ({self.phase}): {what}.{outcome}"

    @property
    def _public_cause(self) -> str:
        return "it cannot be reached"


class MCPTimeoutError(MCPConnectionError):
    """The server did not answer in time."""

    @property
    def _public_cause(self) -> str:
        seconds = self.details.get("seconds")
        return "it did not answer in time" if seconds is None else f"it did not answer within {seconds:g} s"


class MCPProtocolError(MCPError):
    """The server answered with an error, or with something that is not MCP. `details["code"]` has its code, if any."""

    @property
    def public_text(self) -> str:
        # The JSON-RPC error of a tool is about the caller's own arguments.
        is_tool_answer = self.phase == "call" and "code" in self.details
        if is_tool_answer or self.details.get("is_public"):
            return str(self)
        outcome = f" {OUTCOME_UNKNOWN}" if self.details.get("outcome") == "unknown" else ""
        return f"Server '{self.server}' ({self.phase}): it answered with something that cannot be used.{outcome}"


class MCPToolNotFoundError(MCPError):
    """The server has no tool or prompt of that name."""


class MCPToolError(MCPError):
    """A tool of the server reported an error. `result` is what it answered."""

    def __init__(self, message: str, result: MCPToolResult, *, server: str = "", phase: str = "") -> None:
        super().__init__(message, server=server, phase=phase, details={"is_error": True})
        self.result = result
