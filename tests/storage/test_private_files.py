"""What is stored for a user is private to the user, whatever the umask of the process."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

STORE_EVERYTHING = """
import asyncio, os, sys
from datetime import UTC, datetime
from pathlib import Path

from holodeck.agents.sessions import Answerer, SessionStore
from holodeck.cassettes.cassette import Cassette
from holodeck.cassettes.cassette_file import write_cassette
from holodeck.cli.chat.line_reader import _open_history
from holodeck.durable_runs.records import LocalState
from holodeck.gateway.audit.chained_file import ChainedFile
from holodeck.gateway.sealing import _create_key_file
from holodeck.storage.sqlite.connection import connect_sqlite
from holodeck.tools.mcp.auth.token_store import FileTokenStore
from holodeck.tools.mcp.launch.npx import prepare_npx_folder
from holodeck.trust import TrustRecord, open_trust_store

async def use_tokens():
    tokens = FileTokenStore(home / ".holodeck" / "tokens")
    async with tokens.lock("server"):
        await tokens.save("server", {"token": "x"})

home = Path.home()
os.umask(int(sys.argv[1], 8))
open_trust_store().save_record(TrustRecord(path="/a", digest="", trusted_at=0.0, actions=()))
asyncio.run(use_tokens())
SessionStore(home / "state" / "a" / "sessions.db").append("one", (), version=0, by=Answerer())
local = LocalState(home / "state" / "b" / "runs")
with local.lock():
    liveness = local.create_liveness()
    liveness.start()
connect_sqlite(str(home / "gateway.db"), "fast").close()
ChainedFile(home / "audit.jsonl", keys=[b"k"], fsync=False).open()
_create_key_file(home / "gateway.db.key")
_open_history("history")
write_cassette(Cassette(path=home / "one.cassette.yaml", recorded_at=datetime.now(UTC)))
prepare_npx_folder()
"""


@pytest.mark.parametrize("umask", ["000", "077", "777"])
def test_files_and_folders_of_a_user_are_private_whatever_the_umask(umask: str, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", STORE_EVERYTHING, umask]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode for path in tmp_path.rglob("*")}
    open_ones = {name: oct(mode) for name, mode in modes.items() if not _is_private(name, mode)}
    assert open_ones == {}, json.dumps(open_ones, indent=1)
    for name in (".holodeck/trust.json", "state/a/sessions.db", "gateway.db", "gateway.db.key", "audit.jsonl"):
        assert stat.S_ISREG(modes[name])


def _is_private(name: str, mode: int) -> bool:
    expected = 0o700 if stat.S_ISDIR(mode) or name.endswith("npx/shell") else 0o600
    return stat.S_IMODE(mode) == expected
