"""Examples of sessions."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 15

EXAMPLES = (
    Example(
        title="Keep a conversation",
        about=(
            "A session is the history of its runs. `Session()` is in memory; one with a name is stored, and "
            "`holodeck chat --resume shop-7` goes on with it. See [Sessions](../guides/sessions.md)."
        ),
        names=("Session", "SessionConflictError", "SessionInfo"),
        code="""\
from holodeck import Agent, Session, SessionConflictError, SessionInfo
from holodeck.testing import ScriptedModel, say

agent = Agent(ScriptedModel(say("3.50 euros."), say("10.50 euros.")), name="shop")
session = Session.open("shop-7")
agent.run_sync("What does tea cost?", session=session)
try:
    print(agent.run_sync("And three of them?", session=session).output)
except SessionConflictError as error:
    print("Another process has used the session:", error)
info: SessionInfo = Session.list()[0]
print(info.id, info.agent, info.items, info.title)
session.clear()
Session.delete("shop-7")
print(len(session.items))""",
        output="""\
10.50 euros.
shop-7 shop 4 What does tea cost?
0""",
    ),
    Example(
        title="A run that survives",
        about=(
            "`durable=True` stores each step. The module `runs` lists durable runs, and goes on with one that was "
            "interrupted. See [Durable runs](../guides/durable-runs.md#in-python)."
        ),
        names=("runs",),
        code="""\
from holodeck import Agent, runs
from holodeck.testing import ScriptedModel, say

agent = Agent(ScriptedModel(say("Moved.")), name="archivist")
result = agent.run_sync("Move the reports", durable=True)
for run in runs.list():
    print(run.agent, run.status, run.question, "->", run.text)
    if run.status == "interrupted":
        print(runs.resume_sync(run.id, agent).output)""",
        output="archivist completed Move the reports -> Moved.",
    ),
)
