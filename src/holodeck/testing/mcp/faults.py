"""The faults of the server, their sizes and durations, and the schedule that decides which requests they strike."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal, TypeAlias

from holodeck.testing.mcp.actions import Message

Era: TypeAlias = Literal["legacy", "modern"]
"""`legacy`: handshake and sessions, up to 2025-11-25. `modern`: stateless, 2026-07-28."""

ANY = "*"
"""The trigger that matches every request."""
HANDSHAKE = "handshake"
"""The trigger that matches `initialize` in the legacy era and `server/discover` in the modern one."""
START = "start"
"""The trigger of a fault that happens when a process starts, before any request."""

_CALL = "tools/call"
_LIST = "tools/list"
_POLL = "tasks/get"
_PROBE = "server/discover"


class Fault(StrEnum):
    """A way to misbehave, with the request that it happens `on` and an `explanation`."""

    on: str
    explanation: str

    def __new__(cls, value: str, on: str = ANY, explanation: str = "") -> Fault:
        fault = str.__new__(cls, value)
        fault._value_ = value
        fault.on = on
        fault.explanation = explanation
        return fault

    NORMAL = "normal", ANY, "Behaves: every tool and prompt works."

    # A process that ends, hangs or stays
    DIES_AT_START = "dies-at-start", START, "Writes the reason to stderr and exits with code 1."
    DIES_AT_START_SILENTLY = "dies-at-start-silently", START, "Exits with code 3 and says nothing."
    DIES_AFTER_INIT = "dies-after-init", HANDSHAKE, "Answers the handshake, then exits with code 1."
    DIES_MID_CALL = "dies-mid-call", _CALL, "Dies in the middle of a call; over a network, cuts the connection."
    CRASH_LOOP = "crash-loop", _CALL, "Dies on every third call (choose another with `every`)."
    EXITS_ON_DISCOVER = "exits-on-discover", _PROBE, "Exits because it expected an initialize request."
    SILENT_ON_DISCOVER = "silent-on-discover", _PROBE, "Answers everything except the probe."
    HANGS_AT_START = "hangs-at-start", ANY, "Reads everything and never answers anything."
    LATE = "late", _CALL, "Answers two seconds late, or when its slow calls are released."
    HANGS = "hangs", _CALL, "Never answers a call."
    IGNORES_TERM = "ignores-term", START, "Goes on after SIGTERM and after its input has ended."
    IGNORES_EOF = "ignores-eof", START, "Goes on after its input has ended, and ends at SIGTERM."
    LEAVES_CHILD = "leaves-child", START, "Has a helper process in its group that does not end with it."
    CHILD_HOLDS_PIPE = "child-holds-pipe", START, "Likewise, and the helper keeps the output open."
    WRAPPER = "wrapper", START, "Is only the parent of the real server, which does not end with it."
    HUGE_STDERR = "huge-stderr", _CALL, "Writes 50 MB to stderr before it answers."

    # Messages that are wrong on the wire
    ANSWERS_TWICE = "answers-twice", _CALL, "Sends the same answer twice."
    WRONG_ID = "wrong-id", _CALL, "Answers a request that was never made."
    STRAY_ANSWER = "stray-answer", _CALL, "Answers requests that were never made, then the real one."
    ERROR_ID_NULL = "error-id-null", _CALL, "Answers with an error that names no request."
    GARBAGE = "garbage", _CALL, "Prints lines that are not JSON before its answer."
    INVALID_UTF8 = "invalid-utf8", _CALL, "Has one byte in its answer that is not UTF-8."
    LONE_SURROGATE = "lone-surrogate", _CALL, "Has half of a surrogate pair in its answer."
    DEEP_NESTING = "deep-nesting", _CALL, "Answers with 2,000 lists inside each other."
    PRETTY_PRINTED = "pretty-printed", _CALL, "Spreads its answer over several lines."
    BATCH = "batch", _CALL, "Wraps its answer in a JSON array."
    UNFINISHED = "unfinished", _CALL, "Sends half of its answer and then nothing more."
    HUGE_LINE = "huge-line", _CALL, "Answers with 50 MB in one message."
    UNASKED = "unasked", _CALL, "Sends an unknown request and an unknown notification of its own, then answers."
    FLOOD = "flood", _CALL, "Sends 10,000 tools/list_changed notices before its answer."
    PROTOCOL_ERROR = "protocol-error", _CALL, "Answers with a JSON-RPC error."
    UNKNOWN_VERSION = "unknown-version", HANDSHAKE, "Speaks only a protocol version of its own."

    # Lists
    LOOPING_CURSOR = "looping-cursor", _LIST, "Says that there is a next page, always the same one."
    ENDLESS_PAGES = "endless-pages", _LIST, "Says that there is a next page, always a new one."
    THOUSAND_PAGES = "thousand-pages", _LIST, "Lists its tools on 1,000 pages of one tool."
    THOUSAND_TOOLS = "thousand-tools", _LIST, "Has 1,000 tools, on pages of 100."
    TEN_THOUSAND_TOOLS = "ten-thousand-tools", _LIST, "Has 10,000 tools, on pages of 100."
    INVALID_TOOL = "invalid-tool", _LIST, "Has tools without name or schema, and things that are no tools, in its list."
    DUPLICATE_TOOLS = "duplicate-tools", _LIST, "Lists two different tools of the same name."
    BAD_HEADER_ANNOTATION = "bad-header-annotation", _LIST, "Has tools with invalid x-mcp-header annotations."

    # Results
    UNKNOWN_CONTENT = "unknown-content", _CALL, "Answers with a content block of an unknown kind."
    EMPTY_CONTENT = "empty-content", _CALL, "Answers with an empty list of content."
    MISSING_CONTENT = "missing-content", _CALL, "Answers with a result that has no content."
    NULL_CONTENT = "null-content", _CALL, "Answers with content null."
    ERROR_RESULT = "error-result", _CALL, "Answers that the tool has failed (isError)."
    NOT_A_RESULT = "not-a-result", _CALL, "Answers with a string where the result object should be."
    SCHEMA_MISMATCH = "schema-mismatch", _CALL, "Structured content that breaks the tool's own output schema."
    SLOW_SCHEMA_REGEX = "slow-schema-regex", _LIST, "An output schema with a pattern that takes ages to match."
    SLOW_SCHEMA_REF = "slow-schema-ref", _LIST, "An output schema whose references double 40 times."
    INVALID_SCHEMA = "invalid-schema", _LIST, "An output schema that is not a schema."
    REMOTE_REF = "remote-ref", _LIST, "An output schema that refers to a URL, which must not be fetched."
    UNKNOWN_RESULT_TYPE = "unknown-result-type", _CALL, "An unknown resultType (modern)."
    ENDLESS_INPUT = "endless-input", _CALL, "Asks for input again after every answer (modern)."

    # Tasks
    UNASKED_TASK = "unasked-task", _CALL, "Answers a call of any tool with a task (modern)."
    TASK_WITHOUT_ID = "task-without-id", _CALL, "Answers a call with a task that has no id."
    TASK_FORGOTTEN = "task-forgotten", _POLL, "Does not know the task any more."
    TASK_SWAPPED = "task-swapped", _POLL, "Answers with the state of another task."
    TASK_BAD_STATUS = "task-bad-status", _POLL, "Gives a task a status that is a number."
    TASK_WITHOUT_RESULT = "task-without-result", _POLL, "Says that a task is completed, without its result (modern)."

    # HTTP
    HTTP_400 = "http-400", ANY, "Status 400 with a line of text."
    HTTP_401 = "http-401", ANY, "Status 401 with WWW-Authenticate."
    HTTP_403 = "http-403", ANY, "Status 403, insufficient scope."
    HTTP_404 = "http-404", ANY, "Status 404 with a page."
    HTTP_405 = "http-405", ANY, "Status 405."
    HTTP_429 = "http-429", ANY, "Status 429 with Retry-After: 7."
    HTTP_500 = "http-500", ANY, "Status 500 with a line of text."
    HTTP_502 = "http-502", ANY, "Status 502 with a proxy's page."
    HTTP_503 = "http-503", ANY, "Status 503 with Retry-After: 7."
    HTML = "html", ANY, "A login page with status 200."
    BAD_JSON = "bad-json", ANY, "A body that says it is JSON and is not."
    EMPTY_BODY = "empty-body", ANY, "Status 200 and no body."
    ACCEPTED = "accepted", ANY, "Status 202 to a request, as if it were a notification."
    WRONG_CONTENT_TYPE = "wrong-content-type", ANY, "A right answer labelled application/octet-stream."
    TRICKLE = "trickle", _CALL, "A body that arrives byte by byte and never ends."
    CUT_STREAM = "cut-stream", _CALL, "A body that is cut off in the middle."
    BIG_EVENT = "big-event", _CALL, "An SSE event of 3 MiB."
    STREAM_ENDS = "stream-ends", _CALL, "An SSE stream that ends without the answer; legacy: it can be resumed."
    SESSION_EXPIRES_404 = "session-expires-404", _CALL, "Forgets the session once: status 404."
    SESSION_EXPIRES_400 = "session-expires-400", _CALL, "Forgets the session once: status 400."
    HEADER_MISMATCH = "header-mismatch", _CALL, "Says once that the headers do not match the body (modern)."
    REDIRECT_ELSEWHERE = "redirect-elsewhere", ANY, "Redirects to another origin."
    REDIRECT_HERE = "redirect-here", ANY, "Redirects with 307 to another path of its own, which works."
    REQUIRES_TOKEN = "requires-token", ANY, "Status 401 unless the bearer token is right."
    NO_ENDPOINT = "no-endpoint", START, "Legacy SSE: never says where to post."
    POST_500 = "post-500", _CALL, "Legacy SSE: status 500 to the post, and nothing on the stream."


ONCE = frozenset({Fault.SESSION_EXPIRES_400, Fault.SESSION_EXPIRES_404, Fault.HEADER_MISMATCH})
"""Faults that strike once unless `times` is set, because a client recovers from them by trying again."""

# Bytes of a huge message: they break a reader that joins and splits its buffer again with every chunk.
HUGE_BYTES = 50_000_000
# Bytes of a big SSE event: over the 1 MiB at which common readers give up.
BIG_EVENT_BYTES = 3 * 1024 * 1024
# Lists inside each other: deeper than the limit of any JSON parser, yet a small message.
NESTING = 2_000
# Notifications in one burst.
FLOOD = 10_000
# Pages of a long list that does end.
PAGES = 1_000
# Tools on a page: as many as real servers send.
TOOLS_PER_PAGE = 100
MANY_TOOLS = 1_000
VERY_MANY_TOOLS = 10_000
# Every N-th call kills the server: soon enough for a test, late enough to see it recover.
CRASH_EVERY = 3
# Seconds after which processes that the server leaves behind end, even if a test fails.
CHILD_SECONDS = 600
# Seconds in Retry-After: an unusual number, so that a test can tell where it came from.
RETRY_AFTER_SECONDS = 7
# Seconds between two bytes: slow enough that the body does not end during a test, fast enough to be seen.
TRICKLE_SECONDS = 0.05
# Seconds of a late answer: longer than the timeouts that tests set, short enough to wait for.
LATE_SECONDS = 2.0
# Seconds that a test waits for an event, at most, on a busy machine.
WAIT_SECONDS = 60.0
# Seconds between two reads of a journal file.
POLL_SECONDS = 0.01
# 2**40 visits: no schema checker is fast enough to finish them.
REF_DOUBLINGS = 40
# Characters for which a pattern with nested repetition never finishes either.
REGEX_CHARS = 40
# Bytes of the largest message that the server reads.
MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class FaultSchedule:
    """Counts matching requests and decides for each whether the fault strikes it.

    `on` is a method (`tools/call`), a method and a tool or prompt (`tools/call:echo`), `*` for every request,
    or `handshake`; without it, the fault's own. The first `after` matching requests are answered correctly, then the
    fault strikes every `every`-th one, at most `times` times. `count_strikes` counts those of earlier processes, too.
    """

    def __init__(
        self,
        fault: Fault,
        *,
        era: Era,
        on: str | None = None,
        after: int = 0,
        every: int | None = None,
        times: int | None = None,
        count_strikes: Callable[[], int] | None = None,
    ) -> None:
        self.fault = fault
        self._era = era
        self._on = on or fault.on
        self._after = after
        self._every = every or (CRASH_EVERY if fault is Fault.CRASH_LOOP else 1)
        self._times = times if times is not None else (1 if fault in ONCE else None)
        self._seen = 0
        self._strikes = 0
        self._count_strikes = count_strikes or (lambda: self._strikes)

    def strike(self, method: str, name: str | None = None) -> Fault | None:
        """Return the fault if it strikes this request, and count it."""
        if self.fault is Fault.NORMAL or not self._matches(method, name):
            return None
        self._seen += 1
        due = self._seen > self._after and (self._seen - self._after) % self._every == 0
        if not due or (self._times is not None and self._count_strikes() >= self._times):
            return None
        self._strikes += 1
        return self.fault

    def strike_message(self, message: Message) -> Fault | None:
        """Return the fault if the message is a request that it strikes."""
        if "id" not in message or "method" not in message:
            return None
        params = message.get("params")
        return self.strike(str(message["method"]), params.get("name") if isinstance(params, dict) else None)

    def strike_at_start(self) -> Fault | None:
        """Return the fault if it strikes when the process starts."""
        return self.strike(START) if self._on == START else None

    def _matches(self, method: str, name: str | None) -> bool:
        if self._on == ANY:
            return method != START
        if self._on == HANDSHAKE:
            return method == ("initialize" if self._era == "legacy" else "server/discover")
        on_method, _, on_name = self._on.partition(":")
        return method == on_method and on_name in ("", name)
