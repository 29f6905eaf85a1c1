"""Every error that HoloDeck raises on purpose: one tree, each saying what happened, where, and what to do.

HoloDeckError
├── ConfigError                  a file is wrong; carries every problem that was found in it
│   ├── MCPConfigError           ... in the definition of an MCP server
│   │   └── MissingTransportFieldError   a transport lacks the field that it cannot do without
│   └── ValidationError          ... a value that has the wrong shape
├── BadRequestError              a client's request is wrong; carries the path of the field and a code
├── ExecutionError               a run went wrong for a reason outside the files
│   ├── StorageError             what should be kept could not be, or cannot be read
│   └── ModelError               the model could not be asked, or did not answer; carries provider and status
└── MCPError                     an MCP server failed; carries server and phase
    ├── MCPConnectionError       it could not be started, reached or kept
    │   └── MCPTimeoutError      it did not answer in time
    ├── MCPProtocolError         it answered, with an error or with something that is not MCP
    └── MCPToolNotFoundError     it has no tool or prompt of that name
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning"]


class HoloDeckError(Exception):
    """The base: `except HoloDeckError` catches everything that is not a bug."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong in one place of a file."""

    message: str
    file: str = ""
    line: int | None = None
    """Counted from 1, as editors do."""
    column: int | None = None
    key: str = ""
    """The path of the key in the file, such as `tools[0].command`."""
    fix: str = ""
    """What the person can do about it."""
    severity: Severity = "error"
    kind: type[ConfigError] | None = None
    """The class that stands for this problem when it is the only one. None: plain `ConfigError`."""

    @property
    def where(self) -> str:
        """`agent.yaml:12:5`, as terminals and editors make clickable."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part not in ("", None))

    @property
    def label(self) -> str:
        """The name that the contract gives to this kind of problem."""
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
    """A file is wrong. `problems` has everything that was found, in the order of the file."""

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems) or (Problem(message=message, kind=type(self)),)
        super().__init__(message or "\n".join(str(problem) for problem in self.problems))

    @staticmethod
    def of(problems: Iterable[Problem]) -> ConfigError:
        """The error for these problems: of their class when they share one, else a plain `ConfigError`."""
        found = tuple(problems)
        kinds = {problem.kind or ConfigError for problem in found}
        kind = kinds.pop() if len(kinds) == 1 else ConfigError
        return kind(problems=found)


class MCPConfigError(ConfigError):
    """The definition of an MCP server is wrong."""


class MissingTransportFieldError(MCPConfigError):
    """A transport lacks the field that it cannot do without: `command` for stdio, `url` for the others."""


class ValidationError(ConfigError):
    """A value has the wrong shape."""


class BadRequestError(HoloDeckError):
    """A client's request is wrong. `param` is the path of the field, such as `input[2].content[0].image_url`."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ExecutionError(HoloDeckError):
    """A run went wrong for a reason outside the files."""


class StorageError(ExecutionError):
    """What should be kept could not be, or cannot be read. Nothing was half written."""


BAD_QUESTION = "invalid_prompt"
"""The code of a question that a model does not take."""
OVERLOADED = "overloaded"
"""The code of a question that was not asked, because this machine can do no more at once."""
RATE_LIMITED = "rate_limit_exceeded"
"""The code of a question that a provider refused because its caller asks too much at once."""
UNAVAILABLE = "model_unavailable"
"""The code of a question that a provider is too busy for, or that was not asked because the provider keeps failing."""


SERVER_UNAVAILABLE = "server_unavailable"
"""The code of a run that was not begun, because an MCP server that it needs is not there."""


class ServerUnavailableError(ExecutionError):
    """An MCP server with `required: true` is not available."""


class ModelError(ExecutionError):
    """The model could not be asked, or did not answer. `is_retryable` says whether asking again may help."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        is_retryable: bool = False,
        code: str = "",
    ) -> None:
        """`code`: what is wrong with the request, when it is something that who asks can change."""
        super().__init__(message)
        self.code = code
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.is_retryable = is_retryable


class MCPError(HoloDeckError):
    """An MCP server failed. `server` and `phase` say where; `details` has what a program may want to read."""

    def __init__(
        self, message: str, *, server: str = "", phase: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.server = server
        self.phase = phase
        self.details: dict[str, Any] = dict(details or {})

    @property
    def public_text(self) -> str:
        """What a caller may be told who does not operate the server: no address, no cause, none of its output."""
        return str(self)


class MCPConnectionError(MCPError):
    """The server could not be started, reached or kept."""

    @property
    def public_text(self) -> str:
        if self.details.get("is_public"):
            return str(self)
        status = self.details.get("status")
        if self.phase == "authorize":
            what = "it does not accept the credentials" + (f" (HTTP {status})" if isinstance(status, int) else "")
        elif isinstance(status, int) and self.phase != "connect":  # there it is the status of a proxy
            what = f"it answered HTTP {status}"
        else:
            what = self._public_cause
        outcome = " It is not known whether the call took effect." if self.details.get("outcome") == "unknown" else ""
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
        is_own_answer = self.phase == "call" and "code" in self.details  # of the tool, to the caller's arguments
        if is_own_answer or self.details.get("is_public"):
            return str(self)
        return f"Server '{self.server}' ({self.phase}): it answered with something that cannot be used."


class MCPToolNotFoundError(MCPError):
    """The server has no tool or prompt of that name."""
