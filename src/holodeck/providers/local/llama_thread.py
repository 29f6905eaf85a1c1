"""Runs llama.cpp in one worker thread: loads a model once and processes one request at a time.

Chunks of an answer are passed to the event loop through a queue. Closing the iterator of a request, or the thread's
owner calling `close`, stops the model at its next chunk.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holodeck.lib.errors import ModelError
from holodeck.lib.extras import install_hint
from holodeck.providers.local.weights import PROVIDER

# Tokens of the context: a longer prompt takes minutes to process on two cores.
LOCAL_CONTEXT_TOKENS = 4_096
# Seconds to wait at `close` for the chunk that is being computed.
LOCAL_CLOSE_TIMEOUT = 5.0

_NOT_INSTALLED = "The local model needs an extra that is not installed. Install it with: "


class LlamaThread:
    """A model in a worker thread. Loading blocks the interpreter for a second or two; answering does not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        # `Any`: a class of xllamacpp, which has no types.
        self._server: Any = None
        self._is_closed = threading.Event()

    async def load(self) -> None:
        """Load the weights, if they are not loaded. Raises `ModelError`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the chunks of one chat completion as they are produced. Closing the iterator stops the model."""
        loop, stop = asyncio.get_running_loop(), threading.Event()
        chunks: asyncio.Queue[Mapping[str, Any] | BaseException | None] = asyncio.Queue()

        def put_chunk(chunk: Mapping[str, Any] | BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        self._thread.submit(self._chat, dict(body), put_chunk, stop)
        try:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            stop.set()

    async def close(self) -> None:
        """Stop the running request and release the weights, within `LOCAL_CLOSE_TIMEOUT`."""
        self._is_closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)
        shutdown = asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        await asyncio.wait([shutdown], timeout=LOCAL_CLOSE_TIMEOUT)
        self._server = None

    def _load(self) -> None:
        if self._server is not None:
            return
        # Spinning threads would occupy the core of the event loop. The library reads this once, when it is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            xllamacpp = importlib.import_module("xllamacpp")
        except ImportError:
            raise ModelError(_NOT_INSTALLED + install_hint("local"), provider=PROVIDER) from None
        # One core stays free for everything else.
        threads = max(1, (os.cpu_count() or 2) - 1)
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx, params.n_parallel = LOCAL_CONTEXT_TOKENS, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup, params.verbosity = False, -1
        # llama.cpp's server also listens on a loopback port: a random key makes it unusable for other processes.
        params.api_keys = [secrets.token_hex(32)]
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            reason = f"The local model could not be loaded from {self._path}: {error}"
            raise ModelError(f"{reason} Pull it again, or use another GGUF file.", provider=PROVIDER) from error

    def _chat(self, body: dict[str, Any], put_chunk: Any, stop: threading.Event) -> None:
        def on_chunk(chunk: Mapping[str, Any]) -> bool:
            put_chunk(_failure_of(chunk) or chunk)
            return stop.is_set() or self._is_closed.is_set()

        try:
            self._load()
            if not stop.is_set():
                answer = self._server.handle_chat_completions(
                    {**body, "stream": True, "stream_options": {"include_usage": True}}, on_chunk
                )
                if isinstance(answer, dict):
                    put_chunk(_failure_of(answer) or answer)
            put_chunk(None)
        except ModelError as error:
            put_chunk(error)
        except Exception as error:
            put_chunk(ModelError(f"The local model refused the request: {error}", provider=PROVIDER))


def _failure_of(chunk: Mapping[str, Any]) -> ModelError | None:
    error = chunk.get("error")
    if not isinstance(error, Mapping):
        return None
    return ModelError(
        f"The local model could not answer: {error.get('message')}", provider=PROVIDER, status=error.get("code")
    )
