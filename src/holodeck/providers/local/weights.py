"""The weights of local models: which are known, where they are stored, and whether a file is complete."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import COPY_CHUNK_BYTES
from holodeck.lib.record import record

PROVIDER = "local"
GGUF_MAGIC = b"GGUF"


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
    prompt_tokens_per_second: float = 0.0
    """Prompt tokens per second, on the same machine."""

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


_HOME = "https://huggingface.co/Qwen"

KNOWN_WEIGHTS: tuple[Weights, ...] = (
    Weights(
        name="qwen2.5-coder-0.5b",
        url=f"{_HOME}/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        memory="0.7 GB",
        tokens_per_second=15,
        prompt_tokens_per_second=63,
    ),
    Weights(
        name="qwen2.5-coder-1.5b",
        url=f"{_HOME}/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        memory="2 GB",
        tokens_per_second=7,
        prompt_tokens_per_second=25,
    ),
)
DEFAULT_WEIGHTS = KNOWN_WEIGHTS[0]

Progress = Callable[[int, int], None]
"""Called with the number of bytes that are done, and their total."""


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
    missing = wanted[0].name
    raise ModelError(
        f"The weights of the local model '{missing}' are not in {where}. Get them with: holodeck model pull {missing}",
        provider=PROVIDER,
    )


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
