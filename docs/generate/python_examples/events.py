"""Examples of events, items and content."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 52

EXAMPLES = (
    Example(
        title="Follow a run",
        about="`stream` yields the events of a run as they happen; the last one has the result.",
        names=(
            "CallAdded",
            "Event",
            "ItemFinished",
            "ReasoningAdded",
            "RunFinished",
            "RunNoticed",
            "RunStarted",
            "StandInAnswered",
            "TextAdded",
            "ToolFinished",
            "ToolProgressed",
            "ToolStarted",
            "TurnCut",
            "TurnFinished",
            "TurnStarted",
        ),
        code="""\
import asyncio

from holodeck import (
    Agent,
    AgentProgressed,
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunNoticed,
    RunStarted,
    StandInAnswered,
    TextAdded,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnCut,
    TurnFinished,
    TurnStarted,
)
from holodeck.testing import ScriptedModel, call, say, think


def price(product: str) -> float:
    return 3.5


def describe(event: Event) -> str:
    match event:
        case RunStarted():
            return f"run of {event.model}"
        case RunNoticed():
            return event.text
        case StandInAnswered():
            print(f"{event.name} stands in")
        case TurnStarted():
            return f"turn {event.turn} with {event.tools} tool"
        case TurnFinished():
            return f"turn {event.turn} took {event.usage.total_tokens} tokens"
        case TurnCut():
            return f"turn {event.turn} has no answer, and took {event.usage.total_tokens} tokens"
        case TextAdded() | ReasoningAdded():
            return f"{event.type}: {event.text}"
        case CallAdded():
            return f"wants {event.name}{event.arguments}"
        case ToolStarted():
            return f"calls {event.name} with {event.arguments}"
        case ToolProgressed():
            return event.text
        case AgentProgressed():
            return f"{event.agent}: {describe(event.event)}"
        case ToolFinished():
            return f"{event.name} has ended, error: {event.output.is_error}"
        case ItemFinished():
            return f"item: {event.item.type}"
        case RunFinished():
            return f"end: {event.result.status}"


async def main() -> None:
    model = ScriptedModel([think("The price!"), call("price", product="tea")], say("3.50 euros."))
    async for event in Agent(model, tools=[price]).stream("What does tea cost?"):
        print(describe(event))


asyncio.run(main())""",
        output="""\
run of scripted
turn 1 with 1 tool
reasoning.added: The price!
wants price...
...
item: reasoning
item: function_call
turn 1 took ... tokens
calls price with {'product': 'tea'}
price has ended, error: False
item: function_call_output
turn 2 with 1 tool
text.added: 3.50 euros.
item: message
turn 2 took ... tokens
end: completed""",
    ),
    Example(
        title="Questions and results with more than text",
        about=(
            "A question may be a list of items, and a message has parts. A tool may return content blocks. "
            "`result.items` is what the run added, `result.history` is the whole conversation for the next run."
        ),
        names=(
            "AudioContent",
            "BinaryContent",
            "Compaction",
            "ContentBlock",
            "FileData",
            "FunctionCall",
            "FunctionCallOutput",
            "ImageContent",
            "ImageLink",
            "Item",
            "Message",
            "Reasoning",
            "TextContent",
            "Usage",
        ),
        code="""\
from holodeck import (
    Agent,
    AudioContent,
    BinaryContent,
    Compaction,
    ContentBlock,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    ImageLink,
    Item,
    Message,
    Reasoning,
    TextContent,
    Usage,
)
from holodeck.testing import ScriptedModel, call, say, spend, think


def draw(what: str) -> list[ContentBlock]:
    return [TextContent(text=what), ImageContent(data="iVBORw0=", mime_type="image/png")]


def describe(item: Item) -> str:
    match item:
        case Message():
            return f"{item.role}: {[part.type for part in item.content]}"
        case FunctionCall():
            return f"call of {item.name}: {item.arguments}"
        case FunctionCallOutput():
            return f"output: {[part.type for part in item.content]}"
        case Reasoning():
            return f"reasoning: {item.text}"
        case Compaction():
            return f"summary of {len(item.items)} items"


link = ImageLink(url="https://example.com/cat.png")
file = FileData(url="data:text/plain;base64,aGk=", filename="note.txt")
question = Message(role="user", content=(TextContent(text="Draw this."), link, file))
model = ScriptedModel([think("A cat."), call("draw", what="a cat")], [say("Here."), spend(40, 2)])
result = Agent(model, tools=[draw]).run_sync([question])
for item in result.history:
    print(describe(item))
print(result.usage == Usage(input_tokens=40, output_tokens=2))
print([block.type for block in (AudioContent(data="", mime_type="audio/wav"), BinaryContent(data=b"hi"))])""",
        output="""\
user: ['text', 'image_link', 'file']
reasoning: A cat.
call of draw: {"what":"a cat"}
output: ['text', 'image']
assistant: ['text']
True
['audio', 'binary']""",
    ),
)
