"""Where a gateway keeps what it was asked: where its file says, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.testing import ScriptedModel, say


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///:memory:"])
@async_test(90)
async def test_what_is_to_be_kept_in_memory_only_is_on_no_disk(tmp_path: Path, url: str) -> None:
    async with (
        ScriptedModel(say("now"), say("later")).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, storage={"url": url}, background={})) as served,
    ):
        assert (await served.create_response())[0] == 200
        assert (await served.create_response(background=True))[0] == 200
        assert files(tmp_path) == {"gateway.yaml"}


@async_test(90)
async def test_a_file_in_the_home_of_the_user_is_there(tmp_path: Path) -> None:
    (tmp_path / "home" / "kept").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    async with ScriptedModel(say("now")).serve() as scripted:
        file = write_gateway_file(tmp_path / "project", scripted.url, storage={"url": "sqlite:///~/kept/answers.db"})
        async with run_gateway_process(file, environ={"HOME": str(tmp_path / "home")}) as served:
            assert (await served.create_response())[0] == 200
            assert {"home/kept/answers.db", "home/kept/answers.db.key"} < files(tmp_path)
    assert files(tmp_path / "project") == {"gateway.yaml"}
