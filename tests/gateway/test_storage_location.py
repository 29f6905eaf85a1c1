"""A gateway stores responses where its file says, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.testing import ScriptedModel, say


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///:memory:"])
@async_test(90)
async def test_storage_in_memory_writes_no_file(tmp_path: Path, url: str) -> None:
    async with (
        ScriptedModel(say("now"), say("later")).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, storage={"url": url}, background={})) as served,
    ):
        assert (await served.create_response())[0] == 200
        assert (await served.create_response(background=True))[0] == 200
        assert list_files(tmp_path) == {"gateway.yaml"}


@async_test(90)
async def test_a_storage_path_with_a_tilde_is_in_the_home_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "home" / "stored").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    async with ScriptedModel(say("now")).serve() as scripted:
        file = write_gateway_file(tmp_path / "project", scripted.url, storage={"url": "sqlite:///~/stored/answers.db"})
        async with run_gateway_process(file, environ={"HOME": str(tmp_path / "home")}) as served:
            assert (await served.create_response())[0] == 200
            assert {"home/stored/answers.db", "home/stored/answers.db.key"} < list_files(tmp_path)
    assert list_files(tmp_path / "project") == {"gateway.yaml"}
