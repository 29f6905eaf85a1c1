"""The programs on `reference/python.md`. The tests of the pages run them and compare what they print.

Each module of this package is one topic, and is found by itself: `MODULE` is the module of the public names that it
shows, `EXAMPLES` has the programs, and topics come in the order of their `PLACE` (any number). A new public name is
in `names` of at least one example, and in one section of `python_sections.py`.
"""

from __future__ import annotations

import importlib
import pkgutil

from generate.python_examples.example import Example

INTRO = '''\
You can run an agent from your own program, and test it without a model that costs money. These names are public;
other modules may change at any time.

The examples use this tool and its agent:

```python
# tools/prices.py
def price(product: str) -> str:
    """Price of a product in euros."""
    return {"tea": "3.50"}.get(product, "unknown")
```

```yaml
# agent.yaml
name: shop
model:
  provider: rehearsal
instructions: Answer in one sentence.
tools:
  - name: price
    type: function
    file: tools/prices.py
    function: price
```'''


def _read_examples() -> dict[str, tuple[Example, ...]]:
    names = [each.name for each in pkgutil.iter_modules(__path__) if each.name != "example"]
    topics = sorted((importlib.import_module(f"{__name__}.{name}") for name in names), key=lambda topic: topic.PLACE)
    found: dict[str, tuple[Example, ...]] = {}
    for topic in topics:
        found[topic.MODULE] = (*found.get(topic.MODULE, ()), *topic.EXAMPLES)
    return found


EXAMPLES = _read_examples()
"""The programs of each module."""
NAMES_IN_EXAMPLES = {
    (module, name): example.title
    for module, examples in EXAMPLES.items()
    for example in reversed(examples)
    for name in example.names
}
"""The title of the first example that shows a name, by the module and the name."""
OTHER_MEANINGS = {
    "__version__": "The version of HoloDeck, such as `0.1.0`.",
    "ABANDONED": "The method that is recorded when a client closes a response stream before its answer.",
    "Era": "The generation of the protocol. `legacy`: handshake and sessions, up to 2025-11-25. `modern`: stateless, "
    "2026-07-28.",
    "CallDecision": "What `before_call` of a hook decides. None instead of one: the call goes on.",
    "ContentBlock": "A part of a tool result: `TextContent`, `ImageContent`, `AudioContent` or `BinaryContent`.",
    "Event": "An event of a run. Each is a class of its own, and has its name in `type`.",
    "Item": "An item of a conversation: `Message`, `FunctionCall`, `FunctionCallOutput`, `Reasoning` or `Compaction`.",
    "ModelEvent": "What a model yields: deltas, and a `ModelAnswer` last.",
    "Transport": "How a `FaultyMCPServer` is reached.",
}
"""What names are that have no docstring: constants and types."""
