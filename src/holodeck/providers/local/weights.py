"""The weights of local models: which are known, where they are stored, and how they come there.

A download is resumed, its hash verified, then the file moved into place. It is written as `NAME.part`, locked against a
second process, and becomes visible under its name only when it is complete and its SHA-256 is right.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn
from urllib.parse import urljoin, urlsplit

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import COPY_CHUNK_BYTES
from holodeck.lib.net.http1 import HTTP1Response
from holodeck.lib.net.http1_pool import ConnectFailedError, InvalidURLError, failure_reason, send_once
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.urls import REDIRECTS
from holodeck.lib.record import record

PROVIDER = "local"
GGUF_MAGIC = b"GGUF"
_HOME = "https://huggingface.co/Qwen"
Progress = Callable[[int, int], None]
"""Called with the number of bytes that are done, and their total."""
# Consecutive attempts without progress; one that downloads something resets the count.
DOWNLOAD_ATTEMPTS = 4
# Seconds to connect, and without a byte.
DOWNLOAD_TIMEOUT = 30.0
# A publisher sends a client on to a store of files, at another host.
MAX_DOWNLOAD_REDIRECTS = 10
_NETWORK_ERRORS = (ConnectFailedError, InvalidURLError, ConnectionError, TimeoutError)
_PARTIAL, _FIRST_ERROR, _RANGE_REFUSED, _FIRST_SERVER_ERROR = 206, 300, 416, 500


@record
class Weights:
    """The published weights of a model."""

    name: str
    url: str
    size: int
    sha256: str
    licence: str = "Apache-2.0"
    memory: str = ""
    """Memory of the running model, as text."""
    tokens_per_second: float = 0.0
    """Output tokens per second, on two cores of an ordinary machine."""

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


KNOWN_WEIGHTS: tuple[Weights, ...] = (
    Weights(
        name="qwen2.5-coder-0.5b",
        url=f"{_HOME}/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        memory="0.7 GB",
        tokens_per_second=15,
    ),
    Weights(
        name="qwen2.5-coder-1.5b",
        url=f"{_HOME}/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        memory="2 GB",
        tokens_per_second=7,
    ),
)


def models_folder() -> Path:
    """Return the folder of the weights: `$XDG_CACHE_HOME/holodeck/models`, else `~/.cache/holodeck/models`."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "holodeck" / "models"


def require_weights(name: str) -> Weights:
    """Return the weights of this name, or raise a `ModelError` that lists the known names."""
    for weights in KNOWN_WEIGHTS:
        if weights.name == name:
            return weights
    names = ", ".join(weights.name for weights in KNOWN_WEIGHTS)
    raise ModelError(f"There is no known local model '{name}'. There are: {names}.", provider=PROVIDER)


def require_model_file(name: str | None, folder: Path | None = None) -> Path:
    """Return the file of a model name: pulled weights of that name, or the path of a GGUF file.

    Without a name, the first known weights that were pulled. Raises `ModelError` if there is none.
    """
    if name is not None and (name.endswith(".gguf") or os.sep in name):
        path = Path(name).expanduser()
        if not path.is_file():
            raise ModelError(f"There is no model file {path}. Give 'name' the path of a GGUF file.", provider=PROVIDER)
        return path
    where = folder or models_folder()
    wanted = [require_weights(name)] if name is not None else list(KNOWN_WEIGHTS)
    for weights in wanted:
        if (where / weights.file).is_file():
            return where / weights.file
    what = "No weights of a local model are" if name is None else f"The weights of the local model '{name}' are not"
    raise ModelError(f"{what} in {where}. Get them with: holodeck model pull {wanted[0].name}", provider=PROVIDER)


def is_pulled(weights: Weights, folder: Path | None = None) -> bool:
    """Return whether the complete file is present. Checks its size only; the hash was verified by the download."""
    path = (folder or models_folder()) / weights.file
    return path.is_file() and path.stat().st_size == weights.size


def sha256_of(path: Path, on_progress: Progress | None = None) -> str:
    """Return the SHA-256 of a file, which is read in chunks."""
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(COPY_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            if on_progress:
                on_progress(done, size)
    return digest.hexdigest()


def pull(
    weights: Weights, *, folder: Path | None = None, url: str | None = None, on_progress: Progress | None = None
) -> Path:
    """Download weights from their publisher or a mirror, resuming an earlier attempt. Raises `ModelError`."""
    where = folder or models_folder()
    target = where / weights.file
    if is_pulled(weights, where):
        return target
    with _convert_disk_errors(where), _partial_file(where, weights) as part:
        _require_disk_space(where, weights, part)
        asyncio.run(_fetch(weights, url or weights.url, part, on_progress or _ignore_progress))
        return _verify_and_move(weights, part, target)


def import_weights(
    weights: Weights, source: Path, *, folder: Path | None = None, on_progress: Progress | None = None
) -> Path:
    """Copy weights from a file, for machines without Internet access; verified like a download."""
    where = folder or models_folder()
    target = where / weights.file
    _require_weights_file(weights, source)
    with _convert_disk_errors(where), _partial_file(where, weights) as part:
        part.truncate(0)
        _require_disk_space(where, weights, part)
        with source.open("rb") as file:
            writer = _CountingWriter(part, 0, weights.size, on_progress or _ignore_progress)
            while chunk := file.read(COPY_CHUNK_BYTES):
                writer.write(chunk)
        return _verify_and_move(weights, part, target)


def _require_weights_file(weights: Weights, source: Path) -> None:
    if not source.is_file():
        raise ModelError(f"There is no file {source}.", provider=PROVIDER)
    with source.open("rb") as file:
        is_gguf = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    size = source.stat().st_size
    if not is_gguf or size != weights.size:
        what = f"has {size} bytes, not {weights.size}" if is_gguf else "is not a GGUF file"
        raise ModelError(
            f"{source} is not '{weights.name}': it {what}. For other models give 'name' in agent.yaml the file's path.",
            provider=PROVIDER,
        )


@contextmanager
def _partial_file(folder: Path, weights: Weights) -> Iterator[BinaryIO]:
    """Open the partial file with an exclusive lock, so that two processes do not write it at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{weights.file}.part").open("ab+") as part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ModelError(
                f"'{weights.name}' is being pulled already, by another process.", provider=PROVIDER
            ) from None
        yield part


def _require_disk_space(folder: Path, weights: Weights, part: BinaryIO) -> None:
    needed = weights.size - _file_size(part)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"'{weights.name}' needs {needed / 1e6:.0f} MB more in {folder}, where {free / 1e6:.0f} MB are free."
            " Make room, or set XDG_CACHE_HOME to a larger disk.",
            provider=PROVIDER,
        )


async def _fetch(weights: Weights, url: str, part: BinaryIO, on_progress: Progress) -> None:
    """Download until the file is complete, or until `DOWNLOAD_ATTEMPTS` in a row made no progress."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ModelError(f"'{url}' is not an http(s) address.", provider=PROVIDER)
    idle = 0
    while _file_size(part) < weights.size:
        before = _file_size(part)
        try:
            await _download_once(weights, url, part, on_progress)
        except _NETWORK_ERRORS as error:
            if idle + 1 >= DOWNLOAD_ATTEMPTS:
                reason = "no answer" if isinstance(error, TimeoutError) else failure_reason(error)
                _raise_incomplete(weights, url, part, reason)
        idle = 0 if _file_size(part) > before else idle + 1
        if idle >= DOWNLOAD_ATTEMPTS:
            _raise_incomplete(weights, url, part, "it sends nothing")


def _raise_incomplete(weights: Weights, url: str, part: BinaryIO, reason: str) -> NoReturn:
    have = _file_size(part)
    resume = "Run it again to go on from there." if have else "Use --from FILE on a machine without internet."
    raise ModelError(
        f"The download of '{weights.name}' from {_host(url)} stopped at {have / 1e6:.0f} of {weights.size / 1e6:.0f} MB"
        f" ({reason}). {resume}",
        provider=PROVIDER,
        is_retryable=True,
    )


async def _download_once(weights: Weights, url: str, part: BinaryIO, on_progress: Progress) -> None:
    have = _file_size(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    for redirects_left in reversed(range(MAX_DOWNLOAD_REDIRECTS + 1)):
        async with AsyncExitStack() as opened:
            async with asyncio.timeout(DOWNLOAD_TIMEOUT):
                request = send_once("GET", url, headers, connect_timeout=DOWNLOAD_TIMEOUT, proxy=find_proxy(url))
                response = await opened.enter_async_context(request)
            location = response.headers.get("location")
            if response.status not in REDIRECTS or not location or not redirects_left:
                await _read_file(response, weights, url, part, on_progress)
                return
            url = urljoin(url, location)


async def _read_file(
    response: HTTP1Response, weights: Weights, url: str, part: BinaryIO, on_progress: Progress
) -> None:
    if response.status >= _FIRST_ERROR:
        _recover_from_status(response.status, weights, url, part)
        return
    have = _file_size(part)
    is_resumed = response.status == _PARTIAL and response.headers.get("content-range", "").startswith(f"bytes {have}-")
    # A server without ranges sends the file from its start.
    if have and not is_resumed:
        part.truncate(0)
    writer = _CountingWriter(part, have if is_resumed else 0, weights.size, on_progress)
    while not response.is_at_end:
        async with asyncio.timeout(DOWNLOAD_TIMEOUT):
            chunk = await response.read()
        writer.write(chunk)


def _recover_from_status(status: int, weights: Weights, url: str, part: BinaryIO) -> None:
    """Return if another attempt may succeed; raise `ModelError` for a status that a retry does not change."""
    if status == _RANGE_REFUSED and _file_size(part):
        part.truncate(0)
    elif status < _FIRST_SERVER_ERROR:
        raise ModelError(f"{_host(url)} answered {status} for {weights.file}.", provider=PROVIDER)


class _CountingWriter:
    """Writes chunks and reports progress. More bytes than expected are an error."""

    def __init__(self, part: BinaryIO, have: int, size: int, on_progress: Progress) -> None:
        self._part = part
        self._have = have
        self._size = size
        self._on_progress = on_progress

    def write(self, chunk: bytes) -> None:
        self._have += len(chunk)
        if self._have > self._size:
            self._part.truncate(0)
            message = f"More than the {self._size} bytes of the model came. It was thrown away."
            raise ModelError(message, provider=PROVIDER)
        self._part.write(chunk)
        self._on_progress(self._have, self._size)


def _verify_and_move(weights: Weights, part: BinaryIO, target: Path) -> Path:
    part.flush()
    os.fsync(part.fileno())
    path = Path(part.name)
    digest = sha256_of(path)
    if digest != weights.sha256:
        path.unlink()
        raise ModelError(
            f"What came is not '{weights.name}': its sha256 is {digest}, not {weights.sha256}. It was thrown away.",
            provider=PROVIDER,
        )
    path.replace(target)
    return target


@contextmanager
def _convert_disk_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the disk, such as a full one, to `ModelError`."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            message = f"The disk of {folder} is full. The part that was downloaded stays there."
            raise ModelError(message, provider=PROVIDER) from None
        raise ModelError(f"{folder} cannot be written: {error.strerror or error}.", provider=PROVIDER) from None


def _file_size(part: BinaryIO) -> int:
    part.flush()
    return os.fstat(part.fileno()).st_size


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


def _ignore_progress(done: int, size: int) -> None:
    """Do nothing: the default for `on_progress`."""
