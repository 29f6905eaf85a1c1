"""Replays a cassette many times, as a program of its own that reports what it opens: `replay_program.py FOLDER TIMES`.

Prints the events of each replay as one line, then every socket and process that was opened, if any.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from cassettes.recorded_agent import RecordedAgent

FORBIDDEN = ("socket.connect", "socket.bind", "subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system")
opened: list[str] = []


def watch(event: str, _arguments: object) -> None:
    if event in FORBIDDEN:
        opened.append(event)


async def replay(agent: RecordedAgent) -> None:
    print(json.dumps(await agent.replay()))


if __name__ == "__main__":
    sys.addaudithook(watch)
    folder, times = Path(sys.argv[1]), int(sys.argv[2])
    replayed = RecordedAgent(folder, None)
    for _ in range(times):
        asyncio.run(replay(replayed))
    print(json.dumps(opened))
