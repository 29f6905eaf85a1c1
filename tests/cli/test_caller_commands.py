"""`holodeck callers` at a gateway that runs: list, pause, resume, export and erase."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from async_tests import async_test
from gateway.config_entries import keys
from gateway.gateway_process import run_gateway_process, write_gateway_file
from holodeck_command import run_holodeck

from holodeck.testing import ScriptedModel, say

OPS, ALICE = "hd-ops", "hd-alice"


@async_test(120)
async def test_an_operator_pauses_exports_and_erases_a_caller_in_the_terminal(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("Hi.")).serve() as model:
        file = write_gateway_file(tmp_path, model.url, keys=[*keys(ALICE), *keys(OPS, role="operator")])
        async with run_gateway_process(file) as gateway:

            async def run_callers(*words: str, key: str = OPS, stdin: str = "") -> subprocess.CompletedProcess[str]:
                words = ("callers", *words, "--url", gateway.url)
                environ = {"HOLODECK_OPERATOR_KEY": key}
                return await asyncio.to_thread(run_holodeck, *words, cwd=tmp_path, env=environ, stdin=stdin)

            async def ask() -> int:
                body = {"model": "demo", "input": "hi"}
                headers = {"authorization": f"Bearer {ALICE}"}
                return (await gateway.send("POST", "/v1/responses", body, headers))[0]

            assert await ask() == 200
            done = await run_callers("pause", ALICE)
            assert (done.returncode, done.stdout) == (0, f"key:{ALICE} is paused.\n"), done.stderr
            assert done.stderr == "It is in force at every gateway within a second.\n"
            assert await ask() == 401
            [listed] = json.loads((await run_callers("list", "ALICE", "--json")).stdout)
            assert (listed["id"], listed["paused"]) == (f"key:{ALICE}", True)
            assert "paused" in (await run_callers("list")).stdout
            assert json.loads((await run_callers("resume", ALICE, "--json")).stdout)["paused"] is False
            assert await ask() == 200
            lines = [json.loads(line) for line in (await run_callers("export", ALICE)).stdout.splitlines() if line]
            assert [line["object"] for line in lines if line["object"] != "usage"] == ["caller", "run", "run"]
            refused = await run_callers("erase", ALICE, stdin="n\n")
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "for good?" in refused.stderr
            done = await run_callers("erase", ALICE, "--yes")
            assert (done.returncode, done.stdout) == (0, f"key:{ALICE} is erased.\n"), done.stderr
            exported = await run_callers("export", ALICE)
            assert len(exported.stdout.splitlines()) == 1
            denied = await run_callers("pause", OPS, key=ALICE)
            assert denied.returncode == 1
            assert "This needs a key with the role operator" in denied.stderr
