"""Examples of models of the program."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 54

EXAMPLES = (
    Example(
        title="A model of your own",
        about=(
            "Any object with `name`, `stream` and `close` is a `ModelProvider`. It yields deltas, and a `ModelAnswer` "
            "last. It raises `ModelError` for what it cannot do."
        ),
        names=(
            "AnswerVoided",
            "CallDelta",
            "ContextCompacted",
            "ModelAnswer",
            "ModelError",
            "ModelEvent",
            "ModelProvider",
            "ModelRequest",
            "ReasoningDelta",
            "StandInChosen",
            "TextDelta",
            "ToolChoice",
            "ToolSpec",
        ),
        code="""\
from collections.abc import AsyncGenerator
from typing import get_args

from holodeck import (
    Agent,
    AnswerVoided,
    CallDelta,
    ContextCompacted,
    FunctionCall,
    FunctionCallOutput,
    Message,
    ModelAnswer,
    ModelError,
    ModelEvent,
    ModelProvider,
    ModelRequest,
    ReasoningDelta,
    StandInChosen,
    TextContent,
    TextDelta,
    ToolChoice,
    ToolSpec,
)


class Parrot:
    name = "parrot"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        last = request.items[-1]
        if isinstance(last, FunctionCallOutput):
            yield TextDelta(text="Done.")
            message = Message(role="assistant", content=(TextContent(text="Done."),))
            yield ModelAnswer(items=(message,), finish="stop")
        elif request.tools and request.tool_choice.mode != "none":
            yield ReasoningDelta(text="I have a tool.")
            yield CallDelta(index=0, call_id="call_1", name=request.tools[0].name, arguments="{}")
            call = FunctionCall(call_id="call_1", name=request.tools[0].name, arguments="{}")
            yield ModelAnswer(items=(call,), finish="tool_calls")
        else:
            raise ModelError("The parrot sleeps.", provider="zoo", is_retryable=True)

    async def close(self) -> None:
        pass


def sing() -> str:
    return "La la la"


model: ModelProvider = Parrot()
print(Agent(model, tools=[sing]).run_sync("Sing!").output)
result = Agent(model).run_sync("Sing!", tool_choice=ToolChoice(mode="none"))
print(result.status, result.error.message, result.error.is_retryable)
result = Agent(model).run_sync("Sing!", functions=[ToolSpec(name="whistle")])
print(result.status, result.pending[0].name)
print({AnswerVoided, ContextCompacted, StandInChosen} <= set(get_args(ModelEvent)))""",
        output="""\
Done.
failed The parrot sleeps. True
requires_action whistle
True""",
    ),
)
