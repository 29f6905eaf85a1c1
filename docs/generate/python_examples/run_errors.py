"""Examples of the classes of errors."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 62

EXAMPLES = (
    Example(
        title="A run without an answer",
        about=(
            "`result.output` and `result.raise_for_status()` raise a `RunError` unless the run is completed: one class "
            "for each status. It has the result, and that has a `Failure` if the run failed."
        ),
        names=(
            "ExecutionError",
            "Failure",
            "MissingServer",
            "RunCancelledError",
            "RunError",
            "RunFailedError",
            "RunIncompleteError",
            "RunPausedError",
        ),
        code="""\
from holodeck import (
    Agent,
    ExecutionError,
    Failure,
    MCPServer,
    MissingServer,
    RunCancelledError,
    RunError,
    RunFailedError,
    RunIncompleteError,
    RunPausedError,
    ToolSpec,
)
from holodeck.testing import ScriptedModel, call, fail, finish, say

ends = {
    "failed": ScriptedModel(fail("the model is overloaded")),
    "incomplete": ScriptedModel([say("A long ans"), finish("length")]),
    "paused": ScriptedModel(call("sign")),
}
for model in ends.values():
    try:
        Agent(model).run_sync("Hello", functions=[ToolSpec(name="sign")]).raise_for_status()
    except RunFailedError as error:
        failure: Failure | None = error.result.error
        print("failed:", failure.code, failure.message)
    except RunIncompleteError as error:
        print("incomplete:", error.result.cause, error.result.text)
    except RunPausedError as error:
        print("paused:", error.result.pending[0].name)
print([issubclass(RunCancelledError, each) for each in (RunError, ExecutionError)])

nowhere = MCPServer.http("http://127.0.0.1:9/mcp", name="nowhere")
missing: MissingServer = Agent(ScriptedModel(say("Hi.")), tools=[nowhere]).run_sync("Hello").missing_servers[0]
print(missing.name, missing.required)""",
        output="""\
...
failed: model_error the model is overloaded
incomplete: max_output_tokens A long ans
paused: sign
[True, True]
nowhere False""",
    ),
    Example(
        title="The tree of errors",
        about=(
            "All have one base. [Errors](errors.md) says when each is raised, what it carries and what to do. A "
            "`ConfigError` has a `Problem` for each thing that is wrong."
        ),
        names=(
            "CassetteMismatchError",
            "MCPConfigError",
            "MCPConnectionError",
            "MCPError",
            "MCPProtocolError",
            "MCPTimeoutError",
            "MCPToolNotFoundError",
            "MissingTransportFieldError",
            "Problem",
            "ServerUnavailableError",
            "StorageError",
            "ValidationError",
        ),
        code="""\
from holodeck import (
    CassetteMismatchError,
    ConfigError,
    ExecutionError,
    HoloDeckError,
    MCPConfigError,
    MCPConnectionError,
    MCPError,
    MCPProtocolError,
    MCPServer,
    MCPTimeoutError,
    MCPToolNotFoundError,
    MissingTransportFieldError,
    Problem,
    ServerUnavailableError,
    StorageError,
    ValidationError,
)

try:
    MCPServer.http("not a url")
except MCPConfigError as error:
    problem: Problem = error.problems[0]
    print(isinstance(error, ConfigError), problem.severity)

for base, errors in {
    HoloDeckError: [CassetteMismatchError],
    ConfigError: [ValidationError, MissingTransportFieldError],
    ExecutionError: [ServerUnavailableError, StorageError],
    MCPError: [MCPConnectionError, MCPTimeoutError, MCPProtocolError, MCPToolNotFoundError],
}.items():
    print(base.__name__, all(issubclass(each, base) for each in errors), issubclass(base, HoloDeckError))""",
        output="""\
True error
HoloDeckError True True
ConfigError True True
ExecutionError True True
MCPError True True""",
    ),
)
