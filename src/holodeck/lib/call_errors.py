"""Texts that a model gets in place of a call's result: whether the call ran, and what is known of its outcome.

All of them are here, so that one case has one wording. Errors of a tool or of a server have texts of their own.
"""

from __future__ import annotations

OUTCOME_UNKNOWN = "It is not known whether the call took effect."
"""Ends the text of every error after which a call may have run."""

NOT_RUN = "This call was not run."
INTERRUPTED = "The user stopped the run before this call had a result. It may or may not have taken effect."
OUT_OF_TIME = "The time of the run was over before this call had a result. It may or may not have taken effect."
PROCESS_ENDED = (
    "The process that ran this call ended before it had an answer. Whether the call took effect is unknown. "
    "Find out before you repeat it."
)

RESPONSE_ENDED_BEFORE = "This call was not run: the response ended before it."
RESPONSE_ENDED_DURING = f"The response ended before this call had a result. {OUTCOME_UNKNOWN}"
CLAIMED_ELSEWHERE = (
    "Another response has gone on with this call. What came of it is not known here. It is not run again."
)
UNANSWERED = "The client went on without an answer to this call."

TOOL_CHANGED = (
    "The tool '{tool}' was not run: its server has changed its definition since it was offered. "
    "Read its description and parameters as they are offered now before you call it again."
)

TOOL_ADDED = (
    "The tool '{tool}' was not run: its server has added it since this run began{others}. "
    "Read the description and parameters before you call it again."
)

CHANGED_SINCE_APPROVAL = (
    "The tool '{tool}' was not run: its server has changed its definition since the person approved the call. "
    "Call it again, if it is still right as it is offered now: the person is then asked again."
)

OUT_OF_SCOPE = (
    "The tool '{tool}' of server '{server}' was not run: the key of this caller does not allow it any more. "
    "Go on without it."
)

NOT_RECORDED = (
    "This call was not run: the gateway cannot write its audit log at this moment. Its operator has to repair that; "
    "calling again before that does not help."
)

QUESTION_UNASSIGNED = (
    "While this call ran, its server asked a question, and did not say for which of several calls. Nobody was asked: "
    "the question was declined. If it was for this call, call the tool again later."
)
"""Added to the result of the call."""

NOT_APPROVED = "The person did not approve this call; it was not run."
UNDECIDED = "The person went on without approving this call; it was not run."
APPROVED_WITHOUT_RESULT = "This call was approved, and came to no result."
