"""Every number of the misbehaving server, named, with the reason it has its size."""

HUGE_BYTES = 50_000_000  # what breaks a reader that joins and splits its buffer again with every chunk
BIG_EVENT_BYTES = 3 * 1024 * 1024  # over the 1 MiB at which common SSE readers give up
NESTING = 2_000  # deeper than any JSON parser's own limit, yet a small message
FLOOD = 10_000  # notifications in one burst
PAGES = 1_000  # of a list that does end
TOOLS_PER_PAGE = 100  # what servers in the field use
MANY_TOOLS = 1_000
VERY_MANY_TOOLS = 10_000
CRASH_EVERY = 3  # two calls work, the third kills: short enough for a test, long enough to see recovery
CHILD_SECONDS = 600  # nothing this server leaves behind outlives ten minutes, even where a test fails
RETRY_AFTER_SECONDS = 7  # an odd number, so that a test sees whether it came from here
TRICKLE_SECONDS = 0.05  # between two bytes: slow enough to never end, quick enough to be seen
LATE_SECONDS = 2.0  # longer than the time limits of a test, shorter than its patience
WAIT_SECONDS = 20.0  # the longest a test waits for an event, on a machine with much else to do
POLL_SECONDS = 0.01  # between two looks at a journal file
REF_DOUBLINGS = 40  # 2**40 visits: no checker ends this by being quick
REGEX_CHARS = 40  # likewise for a pattern with nested repetition
MAX_MESSAGE_BYTES = 256 * 1024 * 1024  # what the server reads in one message
