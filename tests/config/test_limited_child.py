"""Work in a child with limits: its result and its errors arrive, and what exceeds a limit ends the child alone."""

from __future__ import annotations

import os
import signal

import pytest

from holodeck.lib.errors import ConfigError
from holodeck.lib.limits import MIB
from holodeck.lib.system.limited_child import LimitExceededError, run_limited

# The runner of the tests has threads, which none of this work uses. The command has none.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
MEMORY = 512 * MIB
LIMITS = {"cpu_seconds": 1, "memory_bytes": MEMORY}


def test_the_result_and_the_error_of_the_work_arrive() -> None:
    assert run_limited(lambda: ("x" * 10_000_000)[:3] + str(os.getpid()), **LIMITS) != f"xxx{os.getpid()}"

    def fail() -> None:
        raise ConfigError("it is wrong")

    with pytest.raises(ConfigError, match="it is wrong"):
        run_limited(fail, **LIMITS)


def compute() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("work", "words"),
    [
        pytest.param(compute, "CPU time", id="computes without end"),
        pytest.param(lambda: [bytes(MIB) for _ in range(2_000)], "memory", id="takes all memory"),
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGKILL), "crashed", id="is killed"),
        pytest.param(lambda: os._exit(0), "crashed", id="ends"),
    ],
)
def test_work_beyond_a_limit_is_an_error_and_this_process_goes_on(work: object, words: str) -> None:
    assert callable(work)
    with pytest.raises(LimitExceededError, match=words):
        run_limited(work, **LIMITS)
