"""Weights are downloaded completely or not at all, and every failure is explained."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from providers.file_server import FileServer, serve_files

from holodeck.lib.errors import ModelError
from holodeck.providers.local.weights import (
    KNOWN_WEIGHTS,
    Weights,
    import_weights,
    is_pulled,
    models_folder,
    pull,
    require_model_file,
    require_weights,
    sha256_of,
)

CONTENT = b"GGUF" + random.Random(7).randbytes(3_000_000)


def _weights(content: bytes = CONTENT) -> Weights:
    digest = hashlib.sha256(content).hexdigest()
    return Weights(name="tiny", url="http://127.0.0.1:9/tiny.gguf", size=len(content), sha256=digest)


def test_a_pull_fetches_checks_and_reports_how_far_it_is(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    with serve_files(FileServer(content=CONTENT)) as server:
        path = pull(
            _weights(), folder=tmp_path, url=server.url, on_progress=lambda done, size: progress.append((done, size))
        )
        again = pull(_weights(), folder=tmp_path, url=server.url)
    assert path == again == tmp_path / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.gguf"]
    assert progress[-1] == (len(CONTENT), len(CONTENT))
    assert server.ranges == [None]


def test_a_broken_download_resumes_where_it_stopped(tmp_path: Path) -> None:
    with serve_files(FileServer(content=CONTENT, breaks=[1_200_000, 700_000])) as server:
        assert pull(_weights(), folder=tmp_path, url=server.url).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1200000-", "bytes=1900000-"]


def test_a_redirect_to_the_store_of_the_publisher_is_followed_with_the_range(tmp_path: Path) -> None:
    with (
        serve_files(FileServer(content=CONTENT, breaks=[1_200_000])) as store,
        serve_files(FileServer(content=b"", moved_to=store.url)) as publisher,
    ):
        assert pull(_weights(), folder=tmp_path, url=publisher.url).read_bytes() == CONTENT
        assert store.ranges == publisher.ranges == [None, "bytes=1200000-"]
        publisher.moved_to = publisher.url
        with pytest.raises(ModelError, match="answered 302"):
            pull(_weights(), folder=tmp_path / "other", url=publisher.url)


def test_loopback_addresses_bypass_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # no server listens there
    monkeypatch.delenv("no_proxy", raising=False)
    with serve_files(FileServer(content=CONTENT)) as server:
        assert pull(_weights(), folder=tmp_path, url=server.url).read_bytes() == CONTENT


def test_a_later_pull_resumes_where_an_earlier_one_gave_up(tmp_path: Path) -> None:
    with serve_files(FileServer(content=CONTENT, breaks=[1_000_000, 0, 0, 0, 0])) as server:
        with pytest.raises(ModelError, match=r"stopped at 1 of 3 MB .* Run it again to go on from there"):
            pull(_weights(), folder=tmp_path, url=server.url)
        assert not is_pulled(_weights(), tmp_path)
        assert pull(_weights(), folder=tmp_path, url=server.url).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=1000000-"


def test_a_server_that_knows_no_ranges_sends_it_again(tmp_path: Path) -> None:
    with serve_files(FileServer(content=CONTENT, breaks=[2_000_000], takes_ranges=False)) as server:
        assert pull(_weights(), folder=tmp_path, url=server.url).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"?", CONTENT + b"more"], ids=["other", "longer"])
def test_a_download_with_another_hash_is_deleted(tmp_path: Path, content: bytes) -> None:
    with serve_files(FileServer(content=content)) as server, pytest.raises(ModelError, match="thrown away"):
        pull(_weights(), folder=tmp_path, url=server.url)
    assert not is_pulled(_weights(), tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 0


def test_a_refusal_and_a_dead_server_are_explained(tmp_path: Path) -> None:
    refused = pytest.raises(ModelError, match=r"127\.0\.0\.1 answered 404 for tiny\.gguf")
    with serve_files(FileServer(content=CONTENT, status=404)) as server, refused:
        pull(_weights(), folder=tmp_path, url=server.url)
    with pytest.raises(ModelError, match=r"stopped at 0 of 3 MB .*--from FILE"):
        pull(_weights(), folder=tmp_path, url=server.url)
    with pytest.raises(ModelError, match="not an http"):
        pull(_weights(), folder=tmp_path, url="file:///etc/passwd")


def test_a_model_that_cannot_fit_is_refused_before_the_download(tmp_path: Path) -> None:
    huge = Weights(name="huge", url="http://127.0.0.1:9/huge.gguf", size=10**18, sha256="0" * 64)
    with pytest.raises(ModelError, match="Make room"):
        pull(huge, folder=tmp_path)


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    """A process that may write no more than a megabyte simulates the full disk."""
    code = (
        "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pathlib import Path\nfrom test_weights import _weights, pull\n"
        f"pull(_weights(), folder=Path({str(tmp_path)!r}), url=sys.argv[1])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    with serve_files(FileServer(content=CONTENT)) as server:
        done = subprocess.run(
            [sys.executable, "-c", code, server.url],
            env=env,
            preexec_fn=small_disk,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert "ModelError" in done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr or "is full" in done.stderr


def test_two_pulls_at_once_do_not_mix(tmp_path: Path) -> None:
    with (tmp_path / "tiny.gguf.part").open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(ModelError, match="another process"):
            pull(_weights(), folder=tmp_path)


def test_a_file_is_brought_in_and_checked(tmp_path: Path) -> None:
    source = tmp_path / "stick" / "w.gguf"
    source.parent.mkdir()
    source.write_bytes(CONTENT)
    path = import_weights(_weights(), source, folder=tmp_path / "models")
    assert sha256_of(path) == _weights().sha256
    assert source.exists()
    source.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(ModelError, match="sha256"):
        import_weights(_weights(), source, folder=tmp_path / "other")
    source.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="4 bytes"):
        import_weights(_weights(), source, folder=tmp_path / "other")
    source.write_bytes(b"text")
    with pytest.raises(ModelError, match="not a GGUF file"):
        import_weights(_weights(), source, folder=tmp_path / "other")


def test_missing_weights_are_reported_with_the_command_that_gets_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holodeck model pull qwen"):
        require_model_file(None, tmp_path)
    with pytest.raises(ModelError, match="There are: qwen"):
        require_weights("gpt-9")
    with pytest.raises(ModelError, match="no model file"):
        require_model_file(str(tmp_path / "none.gguf"))
    (tmp_path / KNOWN_WEIGHTS[1].file).write_bytes(b"GGUF")
    assert require_model_file(None, tmp_path) == tmp_path / KNOWN_WEIGHTS[1].file


def test_weights_are_stored_in_the_cache_folder_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models_folder() == tmp_path / "holodeck" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models_folder() == tmp_path / ".cache" / "holodeck" / "models"
