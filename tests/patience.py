"""How long the tests wait for what comes at once on an idle machine.

A limit ends a test that hangs. Those of the helpers are for a machine with nothing else to do, where they are shorter
than the waits of the product: there a test that only such a wait ends fails. On a busy machine everything takes longer
by its load, and so may the tests.
"""

from __future__ import annotations

import os

# A limit that is longer than this many times itself ends nothing any more.
_MOST = 20.0


def patience(seconds: float) -> float:
    """Return a limit in seconds for the machine as busy as it is now."""
    return seconds * min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), _MOST)
