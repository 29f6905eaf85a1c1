"""The command of the image as a process here: the same file and environment, an address and a volume of the test."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.containerfile import env_variables, read_stages
from deploy.manifests import DEPLOY

_IS_SERVING = '"event":"gateway.serving"'
TIMEOUT = 60  # seconds for a process that is starting or stopping on a busy machine


@dataclass(frozen=True, kw_only=True)
class ImageGateway:
    """A process that answers."""

    process: subprocess.Popen[str]
    address: str

    def status(self, path: str, headers: Mapping[str, str]) -> int:
        return self.send("GET", path, headers)[0]

    def send(self, method: str, path: str, headers: Mapping[str, str], body: object = None) -> tuple[int, Any]:
        """Status and data of one answer."""
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT)
        try:
            all_headers = {"Content-Type": "application/json", **headers}
            connection.request(method, path, headers=all_headers, body=None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@contextmanager
def serve_as_image(file: Path, env: Mapping[str, str], folder: Path) -> Iterator[ImageGateway]:
    """`holodeck serve FILE` on a free port of loopback."""
    trust = env_variables(read_stages(DEPLOY / "Containerfile")[1])["HOLODECK_TRUST"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "HOLODECK_TRUST": trust, **env}
    environ |= {"HOLODECK_LISTEN__HOST": "127.0.0.1", "HOLODECK_LISTEN__PORT": "0"}
    command = [sys.executable, "-m", "holodeck", "serve", str(file)]
    with subprocess.Popen(command, env=environ, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        limit = threading.Timer(2 * TIMEOUT, process.kill)
        limit.start()
        try:
            said = next((line for line in process.stderr if line.startswith("Serving") or _IS_SERVING in line), "")
            match = re.search(r"http://([^/]+)/v1", said)
            assert match, "the gateway did not start"
            yield ImageGateway(process=process, address=match[1])
        finally:
            limit.cancel()
            process.kill()
