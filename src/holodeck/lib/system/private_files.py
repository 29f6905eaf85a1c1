"""Files with what people asked and were told are their owner's alone, whatever the umask says."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o600


def create_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read; one that is there stays as its owner has set it."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY))
