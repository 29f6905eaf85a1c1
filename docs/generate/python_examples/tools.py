"""Examples of function tools."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 20

EXAMPLES = (
    Example(
        title="Make a function a tool",
        about=(
            "Every function can be a tool; `@tool` gives it another name, description or timeout. What the model is "
            "told comes from the signature and the docstring. The object is a `Tool`, and can still be called."
        ),
        names=("Tool", "tool"),
        code='''\
from datetime import date

from holodeck import Tool, tool


@tool(name="days_between", timeout=5)
def count_days(start: date, end: date = date(2030, 1, 1)) -> int:
    """Count the days between two dates.

    Args:
        start: The first day.
    """
    return (end - start).days


print(isinstance(count_days, Tool), count_days.name, "-", count_days.description)
print(count_days.spec.parameters["properties"]["start"])
print(count_days(date(2029, 12, 30)))''',
        output="""\
True days_between - Count the days between two dates.
{'description': 'The first day.', 'format': 'date', 'type': 'string'}
2""",
    ),
)
